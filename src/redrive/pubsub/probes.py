"""Whether subscribers run and consume, and what was measured of them: the answers that `redrive run
--metrics` serves, and an ASGI application that gives the same ones inside a service."""

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from redrive.errors import ConfigurationError
from redrive.pubsub import telemetry
from redrive.topology.model import Subscription

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider

TEXT = "text/plain; version=0.0.4; charset=utf-8"

_Scope = MutableMapping[str, object]
_Receive = Callable[[], Awaitable[MutableMapping[str, object]]]
_Send = Callable[[MutableMapping[str, object]], Awaitable[None]]
ASGIApplication = Callable[[_Scope, _Receive, _Send], Awaitable[None]]


class Probed(Protocol):
    """A subscriber, as far as it is asked how it is."""

    subscription: Subscription

    @property
    def ready(self) -> bool:
        """Whether it is connected and consumes."""

    @property
    def is_stuck(self) -> bool:
        """Whether so many of its handlers hang that it takes no more messages."""

    def stopped(self) -> bool:
        """Whether it has ended."""


@runtime_checkable
class ProbedApp(Protocol):
    """An app of either shell, as far as it is asked how its subscribers are."""

    @property
    def _probed(self) -> Sequence[Probed]:
        """Its subscribers that run."""


class Answer(NamedTuple):
    """What is answered: an HTTP status, a content type and a body."""

    status: int
    content_type: str
    body: bytes


def health(subscribers: Iterable[Probed]) -> Answer:
    """Answers 200 while each subscriber runs and is not stuck, and else 503. A broker that is away
    changes nothing."""
    return state(
        "healthy",
        {one.subscription.queue: not one.stopped() and not one.is_stuck for one in subscribers},
    )


def readiness(subscribers: Iterable[Probed]) -> Answer:
    """Answers 200 while each subscriber is connected and consumes, and else 503: also while there
    is none yet, since an app's lifespans still begin."""
    states = {one.subscription.queue: one.ready for one in subscribers}
    return state("ready", states, at_least=1)


def state(word: str, states: dict[str, bool], at_least: int = 0) -> Answer:
    """Answers 200 if all of these hold and there are so many, and else 503, with each of them as
    JSON."""
    well = len(states) >= at_least and all(states.values())
    body = json.dumps({word: well, "subscribers": states}).encode() + b"\n"
    return Answer(200 if well else 503, "application/json", body)


def measuring(asked_by: str) -> tuple[Callable[[], bytes], "MeterProvider"]:
    """Begins to measure; returns what gives the measurements in Prometheus' format, and where more
    of them may go.

    Raises:
        ConfigurationError: OpenTelemetry is not installed; the message says what asked for it.
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
    """An ASGI application with the pages `/metrics`, `/health` and `/ready`, to be mounted in a
    service under any prefix. It needs no framework.

        web.mount("/probes", asgi(app))

    Args:
        subscribers: whose state is told, of either shell; an app stands for those of its
            subscribers that run.
        metrics: whether to measure and to serve `/metrics`. Leave it out in a program that calls
            `redrive.instrument` itself.

    Raises:
        ConfigurationError: OpenTelemetry is not installed, and `metrics` is asked for.
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
        return Answer(405, TEXT, b"GET is served here.\n")
    # Who mounts it says under which prefix, which some servers leave in the path.
    path = str(scope["path"]).removeprefix(str(scope.get("root_path") or ""))
    page = pages.get(path)
    if page is None:
        return Answer(404, TEXT, f"Here are {', '.join(sorted(pages))}.\n".encode())
    return page()
