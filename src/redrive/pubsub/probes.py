"""Health and readiness of subscribers, and their metrics: as `redrive run --metrics` serves them,
and as an ASGI application for use inside a service."""

import json
from collections.abc import (
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from redrive.errors import ConfigurationError
from redrive.pubsub import telemetry
from redrive.pubsub.lanes import BlockedKey
from redrive.topology.model import Subscription

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider

_MOST_SHOWN = 10
TEXT = "text/plain; version=0.0.4; charset=utf-8"

_Scope = MutableMapping[str, object]
_Receive = Callable[[], Awaitable[MutableMapping[str, object]]]
_Send = Callable[[MutableMapping[str, object]], Awaitable[None]]
ASGIApplication = Callable[[_Scope, _Receive, _Send], Awaitable[None]]


class Probed(Protocol):
    """A subscriber whose state can be probed."""

    subscription: Subscription

    @property
    def ready(self) -> bool:
        """Whether it is connected and consuming."""

    @property
    def is_stuck(self) -> bool:
        """Whether so many of its handlers hang that it takes no more messages."""

    @property
    def blocked_keys(self) -> Sequence[BlockedKey]:
        """The keys of an ordered queue that wait for a retry."""

    @property
    def parked_keys(self) -> int:
        """Number of keys whose messages are set aside behind one that was given up."""

    @property
    def keyless(self) -> int:
        """Number of messages without the key that they are ordered by."""

    def stopped(self) -> bool:
        """Check whether it has ended."""


@runtime_checkable
class ProbedApp(Protocol):
    """An app of either shell whose subscribers can be probed."""

    @property
    def _probed(self) -> Sequence[Probed]:
        """Its running subscribers."""


class Answer(NamedTuple):
    """An HTTP response: status, content type and body."""

    status: int
    content_type: str
    body: bytes


def health(subscribers: Iterable[Probed]) -> Answer:
    """Return 200 while every subscriber runs and is not stuck, else 503. Losing the broker does not
    change it. The body also says which keys of ordered queues wait."""
    probed = list(subscribers)
    return state(
        "healthy",
        {one.subscription.queue: not one.stopped() and not one.is_stuck for one in probed},
        order={one.subscription.queue: _waiting(one) for one in probed if one.subscription.ordered},
    )


def _waiting(one: Probed) -> dict[str, object]:
    blocked = one.blocked_keys
    return {
        "blocked_keys": len(blocked),
        "behind": sum(lane.behind for lane in blocked),
        "parked_keys": one.parked_keys,
        "keyless": one.keyless,
        "most_behind": [
            {
                "key": lane.key,
                "since": datetime.fromtimestamp(lane.since, UTC).isoformat(timespec="seconds"),
                "behind": lane.behind,
            }
            for lane in blocked[:_MOST_SHOWN]
        ],
    }


def readiness(subscribers: Iterable[Probed]) -> Answer:
    """Return 200 while every subscriber is connected and consuming, else 503. Without subscribers
    it is 503 too, since the app's lifespans are still starting."""
    states = {one.subscription.queue: one.ready for one in subscribers}
    return state("ready", states, at_least=1)


def state(
    word: str,
    states: dict[str, bool],
    at_least: int = 0,
    order: Mapping[str, object] = MappingProxyType({}),
) -> Answer:
    """Return 200 if all states are true and there are at least `at_least` of them, else 503; the
    body lists them as JSON, with what ordered queues wait for if there are any."""
    well = len(states) >= at_least and all(states.values())
    more = {"order": dict(order)} if order else {}
    body = json.dumps({word: well, "subscribers": states, **more}).encode() + b"\n"
    return Answer(200 if well else 503, "application/json", body)


def measuring(asked_by: str) -> tuple[Callable[[], bytes], "MeterProvider"]:
    """Start metrics; return a function that renders them in Prometheus' format, and the meter
    provider, which other instruments can use.

    Raises:
        ConfigurationError: OpenTelemetry is not installed; the message names `asked_by`.
    """
    try:
        from opentelemetry.exporter.prometheus import PrometheusMetricReader
        from opentelemetry.sdk.metrics import MeterProvider
        from prometheus_client import CollectorRegistry, generate_latest
    except ImportError as error:
        raise ConfigurationError(
            f"{asked_by} needs {error.name}, which is not installed",
            "pip install 'redrive[metrics]'",
        ) from error
    registry = CollectorRegistry()
    provider = MeterProvider([PrometheusMetricReader(registry=registry, scope_info_enabled=False)])
    telemetry.instrument(provider)
    return lambda: generate_latest(registry), provider


def asgi(*subscribers: Probed | ProbedApp, metrics: bool = True) -> ASGIApplication:
    """Return an ASGI application with the pages `/metrics`, `/health` and `/ready`.

    It can be mounted in a service under any prefix, and needs no framework.

        web.mount("/probes", asgi(app))

    Args:
        subscribers: the subscribers to probe, of either shell; an app stands for its running
            subscribers.
        metrics: whether to record metrics and serve `/metrics`. Set it to False in a program that
            calls `redrive.instrument` itself.

    Raises:
        ConfigurationError: OpenTelemetry is not installed, and `metrics` is true.
    """
    pages: dict[str, Callable[[], Answer]] = {
        "/health": lambda: health(_each_of(subscribers)),
        "/ready": lambda: readiness(_each_of(subscribers)),
    }
    if metrics:
        scrape, _ = measuring("/metrics")
        pages["/metrics"] = lambda: Answer(200, TEXT, scrape())

    async def application(scope: _Scope, receive: _Receive, send: _Send) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close"})
            return
        answer = _answer_to(scope, pages)
        headers = [
            (b"content-type", answer.content_type.encode()),
            (b"content-length", str(len(answer.body)).encode()),
        ]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        body = b"" if scope["method"] == "HEAD" else answer.body
        await send({"type": "http.response.body", "body": body})

    return application


def _each_of(given: Iterable[Probed | ProbedApp]) -> Iterator[Probed]:
    for one in given:
        if isinstance(one, ProbedApp):
            yield from one._probed
        else:
            yield one


def _answer_to(scope: _Scope, pages: dict[str, Callable[[], Answer]]) -> Answer:
    if scope["method"] not in ("GET", "HEAD"):
        return Answer(405, TEXT, b"Only GET and HEAD are served here.\n")
    # Some servers leave the prefix that it is mounted under in the path.
    path = str(scope["path"]).removeprefix(str(scope.get("root_path") or ""))
    page = pages.get(path)
    if page is None:
        return Answer(404, TEXT, f"Pages here: {', '.join(sorted(pages))}.\n".encode())
    return page()
