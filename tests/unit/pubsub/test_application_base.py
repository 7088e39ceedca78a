"""What an app and a router refuse before anything connects, and what the environment tells them."""

import asyncio
import inspect
import os
import pydoc
import re
import typing
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any, cast

import pytest

from redrive import (
    App,
    AsyncApp,
    AsyncRouter,
    ConfigurationError,
    ErrorRule,
    RetryPolicy,
    Router,
    Settings,
    Subscriber,
)
from redrive.pubsub.application_base import AppBase
from redrive.pubsub.subscriber_base import SubscriberBase, SubscriberOptions
from redrive.topology.policy import longest_wait_of

AnyApp = AppBase[Any, Any]
URL = "amqp://guest:secret-word@localhost/"
SHELLS: list[tuple[type[AnyApp], type[Router | AsyncRouter]]] = [
    (App, Router),
    (AsyncApp, AsyncRouter),
]
both_shells = pytest.mark.parametrize(
    ("app_type", "router_type"), SHELLS, ids=["blocking", "async"]
)


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("REDRIVE_"):
            monkeypatch.delenv(name)


def test_an_app_takes_each_option_that_a_subscriber_does() -> None:
    places = {"self", "url", "queue", "routing_keys", "exchange", "credentials", "ssl_context"}
    of_subscriber = inspect.signature(SubscriberBase.__init__).parameters

    assert set(SubscriberOptions.__annotations__) == set(of_subscriber) - places
    assert {
        name: of_subscriber[name].annotation for name in typing.get_type_hints(SubscriberOptions)
    } == {
        name: getattr(hint, "__forward_arg__", hint)
        for name, hint in SubscriberOptions.__annotations__.items()
    }


@pytest.mark.parametrize("place", [App, AsyncApp, Router, AsyncRouter])
def test_help_describes_each_option_of_a_subscriber(place: Any) -> None:
    told = pydoc.render_doc(place.subscriber)

    assert re.findall(r"^ {16}(\w+)=", told, re.MULTILINE) == list(
        SubscriberOptions.__annotations__
    )
    assert "concurrency=1: handlers that run at a time" in told


@both_shells
def test_an_option_of_the_app_counts_where_a_subscriber_names_no_other(
    app_type: Callable[..., AnyApp], router_type: Callable[..., object]
) -> None:
    app = app_type(URL, concurrency=4, grace=5)
    app.subscriber("shop@orders", "order.*", grace=7)
    (subscriber,) = app.subscribers

    assert (subscriber._options.concurrency, subscriber._options.grace) == (4, 7)


@both_shells
def test_two_subscribers_of_one_queue_are_refused(
    app_type: Callable[..., AnyApp], router_type: Callable[..., object]
) -> None:
    app = app_type(URL)
    app.subscriber("shop@orders", "order.*")

    with pytest.raises(ConfigurationError, match="'shop@orders' has two subscribers"):
        app.subscriber("shop@orders", "user.*")


def test_two_subscribers_of_one_queue_in_two_routers_are_refused_when_the_app_starts() -> None:
    app = App(URL)
    for _ in range(2):
        router = Router()
        router.subscriber("shop@orders", "order.*").handler(lambda message: None)
        app.include(router)

    with pytest.raises(ConfigurationError, match="'shop@orders' has two subscribers"):
        app.start()


@both_shells
def test_a_router_of_the_other_shell_is_refused(
    app_type: Callable[..., AnyApp], router_type: Callable[..., object]
) -> None:
    other = AsyncRouter() if app_type is App else Router()

    with pytest.raises(ConfigurationError, match="can't include") as told:
        app_type(URL).include(other)

    assert str(told.value).endswith(f" {router_type.__name__}.")


@pytest.mark.parametrize("depth", [1, 2])
def test_a_router_that_is_in_there_already_is_refused(depth: int) -> None:
    app, router = App(URL), Router()
    outer = router
    for _ in range(depth):
        outer = Router().include(outer)
    app.include(outer)

    with pytest.raises(ConfigurationError, match="is included already"):
        app.include(router)


def test_a_router_that_would_hold_itself_is_refused() -> None:
    outer, inner = Router(), Router()
    outer.include(inner)

    for one, other in ((inner, outer), (outer, outer)):
        with pytest.raises(ConfigurationError, match="is included already"):
            one.include(other)


def test_a_subscriber_is_the_decorator_of_its_handler() -> None:
    app = App(URL)

    @app.subscriber("shop@orders", "order.*")  # type: ignore[type-var]  # what it returns is ignored
    def on_order(body: bytes) -> str:
        return body.decode()

    assert on_order(b"called") == "called"


@both_shells
def test_an_app_without_a_subscriber_is_not_run(
    app_type: Callable[..., AnyApp], router_type: Callable[..., object]
) -> None:
    app = app_type(URL)

    with pytest.raises(ConfigurationError, match="no subscriber"):
        app.run() if isinstance(app, App) else asyncio.run(cast(AsyncApp, app).run())


def test_a_url_that_can_not_be_is_refused_when_the_app_is_made() -> None:
    with pytest.raises(ConfigurationError, match="http"):
        App("http://localhost/")


def plain(_: object) -> None:
    pass


def generator(_: object) -> Iterator[None]:
    yield


async def async_generator(_: object) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize(
    ("app_type", "wrong"),
    [(App, plain), (App, async_generator), (AsyncApp, plain), (AsyncApp, generator)],
)
def test_a_lifespan_that_is_no_generator_of_the_shell_is_refused(
    app_type: Callable[..., Any], wrong: Callable[..., object]
) -> None:
    with pytest.raises(ConfigurationError, match=f"lifespan '{wrong.__name__}' is not a"):
        app_type(URL).lifespan(wrong)


def test_credentials_belong_to_the_app() -> None:
    with pytest.raises(ConfigurationError, match="has credentials or ssl_context, but no URL"):
        Subscriber(None, "shop@orders", credentials=lambda: ("user", "password"))


def test_a_subscriber_without_a_broker_says_so() -> None:
    subscriber = Router().subscriber("shop@orders", "order.*")
    subscriber.handler(lambda message: None)

    assert "no broker yet" in repr(subscriber)
    with pytest.raises(ConfigurationError, match="has no broker"):
        subscriber.start()


def test_an_app_without_a_url_says_which_variable_is_missing() -> None:
    app = App()
    app.subscriber("shop@orders", "order.*").handler(lambda message: None)

    with pytest.raises(ConfigurationError, match="the environment has no REDRIVE_URL"):
        app.start()


@pytest.mark.parametrize("name", ["GRACE", "PATIENCE", "PUBLISH_TIMEOUT"])
def test_a_variable_that_can_not_be_read_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDRIVE_URL", URL)
    monkeypatch.setenv(f"REDRIVE_{name}", "soon")
    app = App()
    app.subscriber("shop@orders", "order.*").handler(lambda message: None)

    with pytest.raises(ConfigurationError) as told:
        app.start()

    assert f"REDRIVE_{name}" in str(told.value)
    assert "'soon'" in str(told.value)
    assert len(str(told.value).splitlines()) <= 2


def test_a_url_of_the_environment_that_can_not_be_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REDRIVE_URL", "http://guest:secret-word@localhost/")
    app = App()
    app.subscriber("shop@orders", "order.*").handler(lambda message: None)

    with pytest.raises(ConfigurationError) as told:
        app.start()

    assert "secret-word" not in str(told.value)


@pytest.mark.parametrize(
    "option", [{"retry": 3}, {"concurrency": 0}, {"handler_timeout": "soon"}, {"tags": "a ||"}]
)
def test_an_option_that_no_subscriber_can_have_is_refused_by_the_app(
    option: dict[str, object],
) -> None:
    with pytest.raises(ConfigurationError):
        App(URL, **option)  # type: ignore[arg-type]


def test_the_environment_counts_where_the_program_has_not_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REDRIVE_URL", URL)
    monkeypatch.setenv("REDRIVE_GRACE", "2m")
    monkeypatch.setenv("REDRIVE_PATIENCE", "1h")
    monkeypatch.setenv("REDRIVE_CONNECTION_NAME", "the till")
    app = App()
    for queue, options in (("shop@chosen", {"grace": 1}), ("shop@usual", {})):
        app.subscriber(queue, "order.*", **options).handler(  # type: ignore[arg-type]
            lambda message: None
        )
    run = app._run_of(None)
    (_, chosen), (_, usual) = run.subscribers

    assert (chosen.grace, usual.grace) == (1, 120)
    assert usual.patience == timedelta(hours=1)
    assert run.place.name == "the till"


def test_settings_may_be_a_class_of_the_services_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class ShopSettings(Settings):
        currency: str = "EUR"

    monkeypatch.setenv("REDRIVE_URL", URL)
    monkeypatch.setenv("REDRIVE_CURRENCY", "USD")
    settings = ShopSettings()
    app = App(settings)

    assert settings.currency == "USD"
    assert app._place().url == URL
    assert "secret-word" not in repr(settings)


def test_an_overridden_delay_leaves_the_rest_of_the_budget_alone() -> None:
    app = App(URL)
    policy = RetryPolicy(5, 3600, errors={ValueError: ErrorRule(max_retries=0)})
    subscriber = app.subscriber("shop@orders", "order.*", retry=policy)
    with app.override(retry_delay=0.1):
        retry = subscriber.subscription.retry
        assert (retry.max_retries, longest_wait_of(retry)) == (5, timedelta(seconds=0.1))
        assert retry.errors == policy.errors

    assert subscriber.subscription.retry == policy


def test_a_delay_that_can_not_be_is_not_overridden() -> None:
    app = App(URL)
    with pytest.raises(ConfigurationError, match="'soon'"), app.override(retry_delay="soon"):
        pytest.fail("the block began")


def test_what_an_app_is_shows_its_queues() -> None:
    app = App(URL)
    assert repr(app) == "<App of no subscribers>"
    app.subscriber("shop@orders", "order.*")
    assert repr(app) == "<App of 'shop@orders'>"


def test_what_an_app_runs_tells_the_policy_of_each_queue_that_is_retried() -> None:
    app = App(URL)
    for made in (
        app.subscriber("shop@orders"),
        app.subscriber("shop@mail", retry=RetryPolicy(0)),
        app.subscriber("shop@caches", broadcast=True),
    ):
        made.handler(lambda message: None)

    assert app._run_of(None).policies == {
        "shop@orders": "3 retries, given up 1m30s after the first failure",
        "shop@mail": "no retry",
    }
