"""A subscription is paused and resumed on its queue's page, by who may, with a reason."""

from html import unescape

from contract.support import Service
from redrive import DependencyDown, Message
from redrive.web.console_settings import Permit
from waiting import wait_until
from web.conftest import QUEUE, Opens


def test_a_subscription_is_paused_and_resumed_from_its_page(opens: Opens, service: Service) -> None:
    console = opens(Permit.PAUSE)
    assert "Pause this subscription" in console.get("/causes", queue=QUEUE).text
    answer = console.post("/pause", queue=QUEUE, reason="<b>a migration</b>", **{"for": "30m"})
    assert answer.status_code == 303
    page = console.get("/causes", queue=QUEUE).text
    assert "paused by guest" in page
    assert "<b>a migration</b>" in unescape(page)
    assert "<b>a migration</b>" not in page
    assert ">paused</span>" in console.get("/").text
    assert console.post("/unpause", queue=QUEUE).status_code == 303
    assert "paused by" not in console.get("/causes", queue=QUEUE).text


def test_a_pause_needs_a_reason_and_a_duration_that_can_be_read(
    opens: Opens, service: Service
) -> None:
    console = opens(Permit.PAUSE)
    assert console.post("/pause", queue=QUEUE).status_code == 400
    answer = console.post("/pause", queue=QUEUE, reason="why", **{"for": "a while"})
    assert answer.status_code == 400
    assert "paused by" not in console.get("/causes", queue=QUEUE).text


def test_a_console_that_does_not_allow_it_offers_no_pause_and_makes_none(
    opens: Opens, service: Service
) -> None:
    console = opens(Permit.REQUEUE)
    assert "Pause this subscription" not in console.get("/causes", queue=QUEUE).text
    assert console.post("/pause", queue=QUEUE, reason="why").status_code in (400, 403)


def test_the_overview_says_what_is_down(opens: Opens, service: Service) -> None:
    def handle(_: Message) -> None:
        raise DependencyDown("503", dependency="<billing>")

    console = opens()
    with service.subscriber(handle):
        service.publish()
        wait_until(
            lambda: "down: &lt;billing&gt;" in console.get("/").text, "the overview shows it"
        )
