"""Retry toolkit for RabbitMQ.

Publish a message, retry it after a delay, set it aside with the reason, and requeue it after a fix.

Names are imported on first use, so `import redrive` costs next to nothing: a blocking service never
imports the asyncio client, and a publisher imports nothing that handles failed queues.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redrive.errors import (
        BrokerUnavailable,
        ConfigurationError,
        DependencyDown,
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
    from redrive.failures.aio.async_failed_queue import AsyncFailedQueue
    from redrive.failures.aio.async_job import AsyncJob
    from redrive.failures.failed_queue import FailedQueue
    from redrive.failures.jobs.job import Job
    from redrive.failures.jobs.job_record import JobOutcome, JobRecord
    from redrive.failures.jobs.journal import Journal
    from redrive.failures.message.cause import Cause
    from redrive.failures.message.failed_message import FailedMessage
    from redrive.failures.message.groups import Group
    from redrive.failures.queue.canary import Unknown
    from redrive.failures.queue.order import Order
    from redrive.failures.queue.plan import Plan
    from redrive.failures.queue.snapshot import Snapshot
    from redrive.failures.store.filter import Filter
    from redrive.failures.store.look import QueryResult
    from redrive.pubsub.admin.queue_metrics import observe_queues
    from redrive.pubsub.aio.application import AsyncApp, AsyncRouter
    from redrive.pubsub.aio.publisher import AsyncPublisher
    from redrive.pubsub.aio.subscriber import AsyncSubscriber
    from redrive.pubsub.aio.subscriber import run as run_async
    from redrive.pubsub.app_settings import Settings
    from redrive.pubsub.attempt import Attempt
    from redrive.pubsub.blocking.application import App, Router
    from redrive.pubsub.blocking.publisher import Publisher
    from redrive.pubsub.blocking.subscriber import Subscriber, run
    from redrive.pubsub.decoders import decode_msgpack, decode_protobuf
    from redrive.pubsub.message import Message, current_message
    from redrive.pubsub.publisher_base import BulkMessage, Extras
    from redrive.pubsub.reports import (
        DiscardReport,
        FailedPublish,
        FailedRequeue,
        PublishReport,
        RequeueProgress,
        RequeueReport,
    )
    from redrive.pubsub.telemetry import instrument, uninstrument
    from redrive.topology.backoff import Backoff, Delays, Exponential, Linear
    from redrive.topology.durations import Duration
    from redrive.topology.names import ExchangeFamily
    from redrive.topology.outage import Outage
    from redrive.topology.policy import DISCARD, NO_RETRY, ErrorRule, RetryPolicy

__all__ = [
    "DISCARD",
    "NO_RETRY",
    "App",
    "AsyncApp",
    "AsyncFailedQueue",
    "AsyncJob",
    "AsyncPublisher",
    "AsyncRouter",
    "AsyncSubscriber",
    "Attempt",
    "Backoff",
    "BrokerUnavailable",
    "BulkMessage",
    "Cause",
    "ConfigurationError",
    "Delays",
    "DependencyDown",
    "DiscardReport",
    "Duration",
    "ErrorRule",
    "ExchangeFamily",
    "Exponential",
    "Extras",
    "FailedMessage",
    "FailedPublish",
    "FailedQueue",
    "FailedRequeue",
    "Filter",
    "GiveUp",
    "Group",
    "HandlerTimeout",
    "InvalidMessage",
    "Job",
    "JobOutcome",
    "JobRecord",
    "Journal",
    "Linear",
    "Message",
    "Order",
    "Outage",
    "PermissionDenied",
    "Plan",
    "PublishError",
    "PublishNacked",
    "PublishRefused",
    "PublishReport",
    "PublishTimeout",
    "Publisher",
    "QueryResult",
    "RedriveError",
    "RequeueProgress",
    "RequeueReport",
    "Retry",
    "RetryPolicy",
    "Router",
    "Settings",
    "Snapshot",
    "Subscriber",
    "TopologyMismatch",
    "Unknown",
    "Unroutable",
    "current_message",
    "decode_msgpack",
    "decode_protobuf",
    "instrument",
    "observe_queues",
    "run",
    "run_async",
    "uninstrument",
]

_MODULES = {
    "redrive.errors": (
        "BrokerUnavailable",
        "ConfigurationError",
        "DependencyDown",
        "GiveUp",
        "HandlerTimeout",
        "InvalidMessage",
        "PermissionDenied",
        "PublishError",
        "PublishNacked",
        "PublishRefused",
        "PublishTimeout",
        "RedriveError",
        "Retry",
        "TopologyMismatch",
        "Unroutable",
    ),
    "redrive.failures.aio.async_failed_queue": ("AsyncFailedQueue",),
    "redrive.failures.aio.async_job": ("AsyncJob",),
    "redrive.failures.queue.canary": ("Unknown",),
    "redrive.failures.message.cause": ("Cause",),
    "redrive.failures.message.failed_message": ("FailedMessage",),
    "redrive.failures.failed_queue": ("FailedQueue",),
    "redrive.failures.store.filter": ("Filter",),
    "redrive.failures.message.groups": ("Group",),
    "redrive.failures.jobs.job": ("Job",),
    "redrive.failures.jobs.job_record": (
        "JobOutcome",
        "JobRecord",
    ),
    "redrive.failures.jobs.journal": ("Journal",),
    "redrive.failures.store.look": ("QueryResult",),
    "redrive.failures.queue.order": ("Order",),
    "redrive.failures.queue.plan": ("Plan",),
    "redrive.failures.queue.snapshot": ("Snapshot",),
    "redrive.pubsub.admin.queue_metrics": ("observe_queues",),
    "redrive.pubsub.aio.application": (
        "AsyncApp",
        "AsyncRouter",
    ),
    "redrive.pubsub.aio.publisher": ("AsyncPublisher",),
    "redrive.pubsub.aio.subscriber": ("AsyncSubscriber",),
    "redrive.pubsub.attempt": ("Attempt",),
    "redrive.pubsub.blocking.application": (
        "App",
        "Router",
    ),
    "redrive.pubsub.blocking.publisher": ("Publisher",),
    "redrive.pubsub.blocking.subscriber": (
        "Subscriber",
        "run",
    ),
    "redrive.pubsub.decoders": (
        "decode_msgpack",
        "decode_protobuf",
    ),
    "redrive.pubsub.publisher_base": ("BulkMessage", "Extras"),
    "redrive.pubsub.message": ("Message", "current_message"),
    "redrive.pubsub.reports": (
        "DiscardReport",
        "FailedPublish",
        "FailedRequeue",
        "PublishReport",
        "RequeueProgress",
        "RequeueReport",
    ),
    "redrive.pubsub.app_settings": ("Settings",),
    "redrive.pubsub.telemetry": (
        "instrument",
        "uninstrument",
    ),
    "redrive.topology.backoff": (
        "Backoff",
        "Delays",
        "Exponential",
        "Linear",
    ),
    "redrive.topology.durations": ("Duration",),
    "redrive.topology.names": ("ExchangeFamily",),
    "redrive.topology.outage": ("Outage",),
    "redrive.topology.policy": (
        "ErrorRule",
        "DISCARD",
        "NO_RETRY",
        "RetryPolicy",
    ),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    module, attribute = (
        ("redrive.pubsub.aio.subscriber", "run")
        if name == "run_async"
        else (_MODULE_OF.get(name), name)
    )
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found = globals()[name] = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("redrive"):
            raise
        raise ImportError(
            f"redrive.{name} needs {error.name}: pip install 'redrive[async]'", name=error.name
        ) from error
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
