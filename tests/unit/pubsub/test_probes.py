"""The probes of a service, mounted in Starlette and FastAPI, with subscribers that never ran."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette

from redrive import App, AsyncApp, AsyncSubscriber, Subscriber, uninstrument
from redrive.pubsub.application_base import AppBase
from redrive.pubsub.lanes import BlockedKey
from redrive.pubsub.probes import Probed, asgi

BROKER = "amqp://shop:s3cr3t@localhost/orders"


@pytest.fixture(params=[Starlette, FastAPI])
def service(request: pytest.FixtureRequest) -> Iterator[Starlette]:
    """A service without pages of its own."""
    made = request.param()
    assert isinstance(made, Starlette)
    yield made
    uninstrument()


def asked(service: Starlette, path: str, method: str = "GET") -> httpx.Response:
    """What the service answers, without a server."""

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(service)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            return await client.request(method, path)

    return asyncio.run(ask())


@pytest.mark.parametrize("subscriber", [Subscriber, AsyncSubscriber])
def test_mounted_under_a_prefix_it_tells_that_a_subscriber_does_not_consume(
    service: Starlette, subscriber: type[Subscriber] | type[AsyncSubscriber]
) -> None:
    one: Probed = subscriber(BROKER, "shop@orders")
    service.mount("/probes", asgi(one))
    assert asked(service, "/probes/ready").status_code == 503
    assert asked(service, "/probes/ready").json() == {
        "ready": False,
        "subscribers": {"shop@orders": False},
    }
    assert asked(service, "/probes/health").json() == {
        "healthy": not one.stopped(),
        "subscribers": {"shop@orders": not one.stopped()},
    }


def test_a_subscriber_of_which_too_many_handlers_hang_is_not_healthy(
    service: Starlette, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Subscriber(BROKER, "shop@orders")
    monkeypatch.setattr(Subscriber, "stopped", lambda *_: False)
    monkeypatch.setattr(Subscriber, "is_stuck", True)
    service.mount("/probes", asgi(one))
    assert asked(service, "/probes/health").status_code == 503


def test_of_an_ordered_queue_it_tells_which_keys_wait_since_when_and_how_many(
    service: Starlette, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Subscriber(BROKER, "shop@orders", order_by="$.id")
    blocked = [BlockedKey("7", 0.0, 12), *(BlockedKey(None, 60.0, 1) for _ in range(30))]
    monkeypatch.setattr(Subscriber, "blocked_keys", blocked)
    monkeypatch.setattr(Subscriber, "parked_keys", 2)
    service.mount("/probes", asgi(one, Subscriber(BROKER, "shop@users")))
    (order,) = asked(service, "/probes/health").json()["order"].values()
    first, *others = order.pop("most_behind")
    assert order == {"blocked_keys": 31, "behind": 42, "parked_keys": 2, "keyless": 0}
    assert first == {"key": "7", "since": "1970-01-01T00:00:00+00:00", "behind": 12}
    assert len(others) == 9


def test_metrics_are_in_the_format_of_prometheus(service: Starlette) -> None:
    service.mount("/", asgi())
    answer = asked(service, "/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")


def test_a_page_that_is_not_there_names_those_that_are(service: Starlette) -> None:
    service.mount("/probes", asgi(metrics=False))
    answer = asked(service, "/probes/metrics")
    assert (answer.status_code, answer.text) == (404, "Pages here: /health, /ready.\n")


def test_only_reading_is_served(service: Starlette) -> None:
    service.mount("/probes", asgi(metrics=False))
    assert asked(service, "/probes/health", "POST").status_code == 405


@pytest.mark.parametrize("app_type", [App, AsyncApp])
def test_an_app_stands_for_its_subscribers(
    service: Starlette, app_type: Callable[..., AppBase[Any, Any]]
) -> None:
    app = app_type(BROKER)
    for queue in ("shop@orders", "shop@users"):
        app.subscriber(queue, "order.*")
    service.mount("/probes", asgi(app))

    assert asked(service, "/probes/ready").json() == {
        "ready": False,
        "subscribers": {"shop@orders": False, "shop@users": False},
    }
