"""What is down, according to the workers, shows where people look."""

from cli_support import redrive
from redrive import App, DependencyDown, Message, Outage
from waiting import wait_until

QUEUE = "ucenter@user"


def test_status_and_top_say_what_is_down_until_it_is_back(
    rabbitmq_url: str, rabbitmq_management_url: str
) -> None:
    at = ("--management-url", rabbitmq_management_url)
    app = App(rabbitmq_url)
    is_down = True

    @app.subscriber(QUEUE, "user.*", outage=Outage(probe="100ms", name="billing"))
    def on_user(_: Message) -> None:
        if is_down:
            raise DependencyDown("503", dependency="billing")

    def found(*command: str) -> str:
        return redrive(*command, *at, url=rabbitmq_url).out

    with app:
        app.publisher.publish({}, "user.create")
        words = f"Workers of {QUEUE} take few messages or none until billing answers again."
        wait_until(lambda: words in found("status", QUEUE), "status says it")
        wait_until(lambda: "down: billing" in found("top", "--once"), "top says it")
        (subscriber,) = app.subscribers
        assert subscriber.down == "billing"
        assert app.ready
        is_down = False
        app.publisher.publish({}, "user.create")
        wait_until(lambda: subscriber.down is None, "it is back")
        wait_until(lambda: words not in found("status", QUEUE), "status does not say it any more")
