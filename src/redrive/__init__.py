"""redrive: a retry topology kit for RabbitMQ.

Publish, fail, retry after a delay, set aside with the reason, and send back after the fix.
"""

import importlib
from typing import TYPE_CHECKING

from redrive.errors import (
    BrokerUnavailable,
    ConfigurationError,
    GiveUp,
    HandlerTimeout,
    InvalidMessage,
    PermissionDenied,
    PublishError,
    PublishNacked,
    PublishRefused,
    PublishTimeout,
    RedriveError,
    Retry,
    TopologyMismatch,
    Unroutable,
)
from redrive.pubsub.blocking.failed import FailedQueue
from redrive.pubsub.blocking.publisher import Publisher
from redrive.pubsub.blocking.subscriber import Subscriber, run
from redrive.pubsub.message import FailedMessage, Message
from redrive.pubsub.report import FailedPublish, FailedRequeue, PublishReport, RequeueProgress, RequeueReport
from redrive.pubsub.telemetry import instrument, uninstrument
from redrive.topology.backoff import Delays, Exponential
from redrive.topology.names import ExchangeFamily
from redrive.topology.policy import NO_RETRY, ErrorRule, RetryPolicy

if TYPE_CHECKING:
    from redrive.pubsub.aio.failed import AsyncFailedQueue as AsyncFailedQueue
    from redrive.pubsub.aio.publisher import AsyncPublisher as AsyncPublisher
    from redrive.pubsub.aio.subscriber import AsyncSubscriber as AsyncSubscriber
    from redrive.pubsub.aio.subscriber import run as _run_async

    run_async = _run_async

__all__ = [
    "NO_RETRY",
    "BrokerUnavailable",
    "ConfigurationError",
    "Delays",
    "ErrorRule",
    "ExchangeFamily",
    "Exponential",
    "FailedMessage",
    "FailedPublish",
    "FailedQueue",
    "FailedRequeue",
    "GiveUp",
    "HandlerTimeout",
    "InvalidMessage",
    "Message",
    "PermissionDenied",
    "PublishError",
    "PublishNacked",
    "PublishRefused",
    "PublishReport",
    "PublishTimeout",
    "Publisher",
    "RedriveError",
    "RequeueProgress",
    "RequeueReport",
    "Retry",
    "RetryPolicy",
    "Subscriber",
    "TopologyMismatch",
    "Unroutable",
    "instrument",
    "run",
    "uninstrument",
]

_ASYNC = {
    "AsyncFailedQueue": ("failed", "AsyncFailedQueue"),
    "AsyncPublisher": ("publisher", "AsyncPublisher"),
    "AsyncSubscriber": ("subscriber", "AsyncSubscriber"),
    "run_async": ("subscriber", "run"),
}
"""What is imported when it is asked for: it needs aiormq, which a blocking service does without."""


def __getattr__(name: str) -> object:
    if name not in _ASYNC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _ASYNC[name]
    try:
        return getattr(importlib.import_module(f"redrive.pubsub.aio.{module}"), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("redrive"):
            raise
        raise ImportError(f"redrive.{name} needs {error.name}: pip install 'redrive[async]'", name=error.name) from error
