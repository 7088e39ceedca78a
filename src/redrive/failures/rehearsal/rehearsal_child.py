"""The process in which a rehearsal runs a handler.

It loads the handler once, and forks for each message that it reads from standard input, so that a
message whose handler hangs, exits or crashes costs only itself. Each message and each answer is one
line of JSON. What the handler prints goes to standard error.
"""

import asyncio
import base64
import contextlib
import gc
import importlib
import inspect
import io
import json
import os
import select
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from redrive.amqp.frames import Received
from redrive.amqp.properties import Malformed
from redrive.errors import ConfigurationError, HandlerTimeout, RedriveError
from redrive.pubsub import publisher_base, telemetry
from redrive.pubsub.application_base import AppBase
from redrive.pubsub.consumer import Consumer
from redrive.pubsub.engine import Engine
from redrive.pubsub.handler import is_async, name_of
from redrive.pubsub.handler_error import report_of, traceback_of
from redrive.pubsub.handler_table import Call, HandlerTable
from redrive.pubsub.lifecycle import BrokerAccess
from redrive.pubsub.middleware import surrounded
from redrive.pubsub.router_base import RouterBase, chosen_routes
from redrive.pubsub.subscriber_base import SubscriberBase
from redrive.pubsub.verdict import Decider, OutageSeen, Verdict
from redrive.pubsub.work import ConsumeOptions, LossCounter, WorkItem
from redrive.topology.broker_version import NEWEST
from redrive.topology.decision import Ack
from redrive.topology.headers import Delivery
from redrive.topology.rewrite import ErrorReport

if TYPE_CHECKING:
    from redrive.pubsub.aio.application import AsyncApp
    from redrive.pubsub.blocking.application import App

Answer = dict[str, object]

NOWHERE = "amqp://rehearsal.invalid/"
"""The address that an app has during a rehearsal, so that nothing reaches its broker."""
FRAME_MAX = 131_072
_STEP = 0.1
_MOST_KEYS = 1000
"""Routing keys that are counted for one message."""
_GRACE = 5.0
"""Seconds after its time limit in which a handler's process can say where it hangs."""


AnyEngine = TypeVar("AnyEngine", bound=Engine)


class Target(NamedTuple):
    """What handles the messages of one queue.

    Args:
        app: the app that the subscriber belongs to; None if it has none.
        subscriber: the subscriber.
        options: the options for consuming its queue.
        handlers: its handlers, ready to be called.
    """

    app: "App | AsyncApp | None"
    subscriber: SubscriberBase
    options: ConsumeOptions
    handlers: HandlerTable


class _ReadyHandlers(HandlerTable):
    """Handlers whose parameters are inspected once, and not in each fork."""

    def __init__(self, table: HandlerTable) -> None:
        vars(self).update(vars(table))
        self._ready = table.call()

    def call(self) -> Call:
        return self._ready


def object_at(name: str, what: str) -> object:
    """Return the object that `module:name` names.

    Raises:
        ConfigurationError: there is no such module, or it has no such name.
    """
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise ConfigurationError(
            f"{name!r} does not name {what}", "Give module:name, such as shop.orders:app."
        )
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ConfigurationError(
            f"there is no module {module_name!r} in {os.getcwd()} or installed",
            "Check the name and the directory.",
        ) from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise ConfigurationError(
                f"the module {module_name!r} has no {path!r}", f"Check the name of {what}."
            )
        found = getattr(found, part)
    return found


def target_of(name: str, found: object, queue: str) -> Target:
    """Return what handles the messages of a queue.

    Args:
        name: the name that the object was found by, for error messages.
        found: an app or a router of either shell, a subscriber, or a function.
        queue: the queue that the messages failed in.

    Raises:
        ConfigurationError: it doesn't handle messages of this queue.
    """
    if isinstance(found, RouterBase):
        (route,) = chosen_routes(list(found._routes()), [queue])
        app = cast("App | AsyncApp", found) if isinstance(found, AppBase) else None
        return _target(app, route.subscriber, route.options())
    if isinstance(found, SubscriberBase):
        if found.subscription.queue != queue:
            raise ConfigurationError(
                f"{name} is the subscriber of queue {found.subscription.queue!r}, and the messages "
                f"failed in {queue!r}",
                "Name the subscriber of that queue, or the handler's function.",
            )
        found._check_has_handler()
        return _target(None, found, surrounded(found._options, [found]))
    if not callable(found) or isinstance(found, type):
        raise ConfigurationError(
            f"{name} is of type {type(found).__name__}, and not an app, a subscriber or a function",
            "Name the app, or the function that handles the messages.",
        )
    subscriber = _subscriber_for(found, queue)
    return _target(None, subscriber, subscriber._options)


def _target(
    app: "App | AsyncApp | None", subscriber: SubscriberBase, options: ConsumeOptions
) -> Target:
    # No hook runs, since nothing is set aside.
    options = replace(options, on_give_up=(), concurrency=1)
    return Target(app, subscriber, options, _ReadyHandlers(subscriber._handlers))


def _subscriber_for(function: Callable[..., object], queue: str) -> SubscriberBase:
    # Each shell is imported only if it is needed: the other's client may not be installed.
    if is_async(function):
        from redrive.pubsub.aio.subscriber import AsyncSubscriber

        awaited = AsyncSubscriber(None, queue)
        awaited.handler(cast("Callable[..., Any]", function))
        return awaited
    from redrive.pubsub.blocking.subscriber import Subscriber

    subscriber = Subscriber(None, queue)
    subscriber.handler(cast("Callable[..., None]", function))
    return subscriber


class _NotingDecider(Decider):
    """A decider that keeps the last error it decided about."""

    error: BaseException | None = None

    def failure(
        self, delivery: Delivery, error: BaseException, outage: OutageSeen = None
    ) -> Verdict:
        self.error = error
        return super().failure(delivery, error, outage)


class Attempted:
    """One message that is tried, in a process of its own.

    Args:
        target: what handles it.
        within: makes the context manager around the handler; None for none.
        received: the message, as the broker would deliver it after a requeue.
        limit: seconds that its handler may run.
    """

    def __init__(
        self,
        target: Target,
        within: Callable[..., object] | None,
        received: Received,
        limit: float,
    ) -> None:
        self._target = target
        self._within = within
        self._decider = _NotingDecider(target.subscriber.subscription, NEWEST, FRAME_MAX)
        self._item = WorkItem(cast(Consumer, None), self._decider, received)
        self._limit = limit
        self._stage = "set-up"
        self._began = time.monotonic()
        self._published: Counter[str] = Counter()
        self._task: asyncio.Task[Verdict] | None = None

    def answer(self, say: Callable[[Answer], None]) -> None:
        """Run the handler and say what happened; if it runs for too long, where it hangs."""

        def overdue(_: int, frame: FrameType | None) -> None:
            say(self._overdue(frame))
            os._exit(0)

        signal.signal(signal.SIGALRM, overdue)
        signal.setitimer(signal.ITIMER_REAL, self._limit)
        telemetry.active = None
        publisher_base.recorded = publisher_base.RecordedSession(self._note)
        try:
            if self._target.subscriber._handlers_are_async:
                verdict = asyncio.run(self._awaited())
            else:
                verdict = self._called()
        except BaseException as error:  # noqa: BLE001 - a program may raise anything
            say(self._failed(report_of(error), traceback_of(error)))
            return
        self._stage = "handler"
        if isinstance(verdict.settlement, Ack):
            say(self._about(ok=True, declined=not self._item.ran))
            return
        raised = self._decider.error
        if raised is not None and _is_of_dependency(raised, self._target.handlers):
            self._stage = "set-up"
        report = verdict.error or ErrorReport("", "redrive could not decide about this message")
        say(self._failed(report, "" if raised is None else traceback_of(raised)))

    def _called(self) -> Verdict:
        from redrive.pubsub.blocking.application import lifespan_context
        from redrive.pubsub.blocking.connection import Connector
        from redrive.pubsub.blocking.handler_run import ThreadEngine

        app = self._target.app
        with contextlib.ExitStack() as stack:
            if app is not None:
                stack.enter_context(app.override(NOWHERE))
                for function in app._lifespans:
                    stack.enter_context(lifespan_context(function, cast(Any, app)))
            engine = self._engine(ThreadEngine, Connector(NOWHERE, "rehearsal"))
            context = self._context(engine)
            if context is not None:
                if not isinstance(context, contextlib.AbstractContextManager):
                    raise _no_context(self._within, context, "a context manager")
                self._override(stack.enter_context(context))
            self._begin()
            verdict = engine.verdict(self._item)
            self._end()
        return verdict

    async def _awaited(self) -> Verdict:
        from redrive.pubsub.aio.application import lifespan_context
        from redrive.pubsub.aio.connection import Connector
        from redrive.pubsub.aio.handler_run import TaskEngine

        app = self._target.app
        async with contextlib.AsyncExitStack() as stack:
            if app is not None:
                stack.enter_context(app.override(NOWHERE))
                for function in app._lifespans:
                    await stack.enter_async_context(lifespan_context(function, cast(Any, app)))
            engine = self._engine(TaskEngine, Connector(NOWHERE, "rehearsal"))
            context = self._context(engine)
            if isinstance(context, contextlib.AbstractAsyncContextManager):
                self._override(await stack.enter_async_context(context))
            elif isinstance(context, contextlib.AbstractContextManager):
                self._override(stack.enter_context(context))
            elif context is not None:
                raise _no_context(self._within, context, "a context manager, plain or async")
            self._begin()
            self._task = asyncio.ensure_future(engine.verdict(self._item))
            verdict = await self._task
            self._end()
        return verdict

    def _engine(self, kind: Callable[..., AnyEngine], connector: BrokerAccess) -> AnyEngine:
        """Return an engine of either shell, which is never started."""
        _, subscriber, options, handlers = self._target
        return kind(
            subscriber.subscription,
            connector,
            handlers,
            options,
            dropped=LossCounter(),
            longest=lambda _: None,
        )

    def _context(self, engine: Engine) -> object:
        """Return what is around the handler; None if there is nothing, or no handler will run."""
        if self._within is None:
            return None
        try:
            return self._within(engine.message_of(engine._delivery_of(self._item)))
        except Malformed:
            return None

    def _override(self, given: object) -> None:
        """Use what the context manager yields in place of dependencies."""
        if given is None:
            return
        if not isinstance(given, Mapping) or not all(map(callable, [*given, *given.values()])):
            raise ConfigurationError(
                f"{name_of(self._within)} yields {given!r:.80}",
                "Let it yield nothing, or a dict: the dependency's function, and a function to "
                "call instead.",
            )
        from fast_depends import dependency_provider

        for dependency, instead in given.items():
            dependency_provider.override(dependency, instead)

    def _begin(self) -> None:
        self._published.clear()
        self._stage = "handler"
        self._began = time.monotonic()
        self._item.ran = False
        signal.setitimer(signal.ITIMER_REAL, self._limit)

    def _end(self) -> None:
        self._stage = "clean-up"

    def _note(self, routing_key: str) -> None:
        if routing_key in self._published or len(self._published) < _MOST_KEYS:
            self._published[routing_key] += 1

    def _overdue(self, frame: FrameType | None) -> Answer:
        from redrive.pubsub.aio.workers import stack_of

        task = self._task
        if task is not None and asyncio.current_task(task.get_loop()) is not task:
            stack = stack_of(task)
        else:  # the handler has the thread; what has called this class says nothing about it
            frames = traceback.extract_stack(frame)
            own = max((n for n, one in enumerate(frames) if one.filename == __file__), default=-1)
            stack = "".join(traceback.format_list(frames[own + 1 :]))
        return self._failed(report_of(HandlerTimeout(self._limit)), stack)

    def _failed(self, report: ErrorReport, trace: str) -> Answer:
        return self._about(
            ok=False, error_type=report.type, error_message=report.message, traceback=trace
        )

    def _about(self, **answer: object) -> Answer:
        return {
            **answer,
            "stage": self._stage,
            "seconds": round(time.monotonic() - self._began, 6),
            "published": dict(self._published),
        }


def _is_of_dependency(error: BaseException, handlers: HandlerTable) -> bool:
    """Whether a dependency raised an error before the handler was called."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    called = {getattr(inspect.unwrap(one), "__code__", None) for one in handlers.functions}
    return not any(frame.f_code in called for frame in frames) and any(
        frame.f_globals.get("__name__", "").startswith("fast_depends.") for frame in frames
    )


def _no_context(within: object, found: object, wanted: str) -> ConfigurationError:
    return ConfigurationError(
        f"{name_of(within)} returns a {type(found).__name__}, and not {wanted}",
        "Make it a function with @contextlib.contextmanager, which gets the message.",
    )


def refusal_of(error: BaseException) -> Answer:
    """Return the answer of a process that can't try any message."""
    if isinstance(error, RedriveError):
        problem, _, remedy = str(error).partition("\n")
        return {"refused": problem, "remedy": remedy, "traceback": ""}
    return {
        "refused": f"the handler can't be loaded: {type(error).__name__}: {error}",
        "remedy": "",
        "traceback": traceback_of(error),
    }


class Process:
    """The process that loads the handler, and forks.

    Args:
        handler: the handler, as `module:name`.
        within: the context manager around it, in the same way; empty for none.
        limit: seconds that a handler may run that has no timeout of its own.
        pipes: the descriptors that lead to its parent, which forks close: what outlives one must
            not hold them.
    """

    def __init__(self, handler: str, within: str, limit: float, pipes: Sequence[int] = ()) -> None:
        self._pipes = pipes
        self._name = handler
        self._limit = limit

        def overdue(*_: object) -> None:
            raise HandlerTimeout(limit, "while it was loaded")

        signal.signal(signal.SIGALRM, overdue)
        signal.setitimer(signal.ITIMER_REAL, limit)
        self._found = object_at(handler, "a handler")
        self._within = object_at(within, "a context manager") if within else None
        if self._within is not None and not callable(self._within):
            raise _no_context(within, self._within, "a function that makes a context manager")
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._targets: dict[str, Target] = {}
        self._child = 0
        signal.signal(signal.SIGTERM, self._leave)

    def serve(self, line: bytes) -> bytes:
        """Try the message of a request; return the line that answers."""
        request = json.loads(line)
        queue = request["queue"]
        target = self._targets.get(queue)
        if target is None:
            target = self._targets[queue] = target_of(self._name, self._found, queue)
            gc.freeze()  # else each fork would copy all memory to look for garbage in it
        received = Received(
            1,
            False,
            "",
            queue,
            base64.b64decode(request["raw_properties"]),
            base64.b64decode(request["body"]),
        )
        limit = target.options.handler_timeout or self._limit
        reading, writing = os.pipe()
        within = cast("Callable[..., object] | None", self._within)
        attempted = Attempted(target, within, received, limit)
        self._child = os.fork()
        if not self._child:
            os.close(reading)
            self._try(attempted, writing)
        os.close(writing)
        try:
            return self._answer_from(reading, 2 * limit + _GRACE) or _line_of(self._death())
        finally:
            os.close(reading)
            self._kill()

    def _try(self, attempted: Attempted, writing: int) -> None:
        """In the fork: try the message, and end."""
        process = os.getpid()

        def say(answer: Answer) -> None:
            if os.getpid() == process:  # a handler may fork
                with contextlib.suppress(Exception):  # it may have been printing, or closed them
                    sys.stdout.flush()
                    sys.stderr.flush()
                left = _line_of(answer)
                while left:
                    left = left[os.write(writing, left) :]

        try:
            for pipe in self._pipes:
                os.close(pipe)
            os.setpgid(0, 0)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            attempted.answer(say)
        finally:
            os._exit(0)

    def _answer_from(self, reading: int, seconds: float) -> bytes | None:
        """Return the line that the fork writes; None if it ends, or the time is over, before."""
        deadline = time.monotonic() + seconds
        parts: list[bytes] = []
        ended = False
        while time.monotonic() < deadline:
            if select.select([reading], [], [], 0 if ended else _STEP)[0]:
                part = os.read(reading, 1 << 16)
                parts.append(part)
                if part.endswith(b"\n"):
                    return b"".join(parts)
                if not part:
                    return None
            elif ended:
                return None
            else:
                ended = self._has_ended
        return None

    @property
    def _has_ended(self) -> bool:
        """Whether the fork has ended; it is not reaped yet."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._child, options) is not None

    def _death(self) -> Answer:
        """Return the answer for a fork that has none, because it ended or hangs where nothing
        interrupts it."""
        told = f"the handler hung for more than {self._limit:g} s"
        deadline = time.monotonic() + _STEP
        while not self._has_ended and time.monotonic() < deadline:
            time.sleep(0.001)
        if self._has_ended:
            _, status = os.waitpid(self._child, 0)
            code = os.waitstatus_to_exitcode(status)
            self._child = -self._child  # only what it has started is left
            told = (
                f"its process was ended by {signal.Signals(-code).name}"
                if code < 0
                else f"its process exited with {code}"
            )
        return {"ok": False, "stage": "handler", "died": told}

    def _kill(self) -> None:
        """End the fork, and everything that it has started."""
        child, self._child = self._child, 0
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(abs(child), signal.SIGKILL)
        if child > 0:
            with contextlib.suppress(ProcessLookupError):  # before it had a group of its own
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def _leave(self, *_: object) -> None:
        if self._child > 0:
            with contextlib.suppress(OSError):
                os.killpg(self._child, signal.SIGKILL)
        os._exit(1)


def _line_of(answer: Answer) -> bytes:
    return json.dumps(answer).encode() + b"\n"


def main() -> None:
    """Answer requests until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the parent decides
    requests, answers = os.fdopen(os.dup(0), "rb"), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # only answers go to the parent
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # a crash must not take what was printed
    sys.path.insert(0, os.getcwd())
    pipes = (requests.fileno(), answers)
    process: Process | None = None
    for line in requests:
        try:
            if process is None:
                process = Process(sys.argv[1], sys.argv[2], float(sys.argv[3]), pipes)
            answer = process.serve(line)
        except BaseException as error:  # noqa: BLE001 - a program may raise anything
            answer = _line_of(refusal_of(error))
        while answer:
            answer = answer[os.write(answers, answer) :]


if __name__ == "__main__":
    main()
