"""One attempt to handle a message, as middleware and hooks see it: its error, the decision, and
what happens next."""

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from types import TracebackType
from typing import Literal, get_args

from redrive.pubsub.handler import name_of
from redrive.pubsub.message import Message
from redrive.pubsub.verdict import Verdict
from redrive.topology.decision import Ack, Discard, Drop, MoveToFailed, PutBack, Retried, Settlement

logger = logging.getLogger("redrive")

Outcome = Literal["handled", "retrying", "gave up", "discarded", "let-go", "put back"]
"""How an attempt ends: the message is done, will be retried, is set aside, is discarded by its
error's rule, was dropped by a broadcast subscription, which keeps nothing that fails, or is back in
its queue uncounted, because of an outage."""


class Attempt:
    """One attempt to handle a message.

    Until its handler has run, the attempt counts as successful.

    Args:
        message: the message.
        decide: decides what happens to the message, given the error that ended the attempt, or
            None.
    """

    __slots__ = ("_decide", "_decided", "error", "message")

    def __init__(self, message: Message, decide: Callable[[BaseException | None], Verdict]) -> None:
        self.message = message
        self.error: BaseException | None = None
        """The error raised by the handler, or by middleware closer to it."""
        self._decide = decide
        self._decided: tuple[BaseException | None, Verdict] | None = None

    @property
    def verdict(self) -> Verdict:
        """What happens to the message, given the attempt's current error."""
        if self._decided is None or self._decided[0] is not self.error:
            self._decided = (self.error, self._decide(self.error))
        return self._decided[1]

    @property
    def outcome(self) -> Outcome:
        """How the attempt ends, given its current error."""
        match self._settlement:
            case Ack():
                return "handled"
            case Discard():
                return "discarded"
            case Drop():
                return "let-go"
            case MoveToFailed():
                return "gave up"
            case PutBack():
                return "put back"
            case _:
                return "retrying"

    @property
    def gave_up(self) -> bool:
        """Whether the message is set aside in the failed queue."""
        return isinstance(self._settlement, MoveToFailed)

    @property
    def reason(self) -> str | None:
        """Why the message is set aside, such as `retries-exhausted` or `crashed`; None if it is
        not."""
        settlement = self._settlement
        return settlement.reason if isinstance(settlement, MoveToFailed) else None

    @property
    def retry_in(self) -> timedelta | None:
        """How long the message waits for its next attempt; None if there is none."""
        settlement = self._settlement
        return settlement.delay if isinstance(settlement, get_args(Retried)) else None

    def __str__(self) -> str:
        """Describe what happens next: `retrying in 30 s`, `gave up: retries-exhausted`."""
        if self.retry_in is not None:
            return f"retrying in {self.retry_in.total_seconds():g} s"
        return f"gave up: {self.reason}" if self.gave_up else self.outcome

    def __repr__(self) -> str:
        return f"<Attempt {self.message.attempt} at {self.message!r}: {self}>"

    @property
    def _settlement(self) -> Settlement:
        return self.verdict.settlement


Middleware = Callable[[Attempt], Iterator[None]]
"""A generator function with one `yield`: code before it runs before the handler, code after it runs
after the handler, and the handler's error is raised at it."""
AsyncMiddleware = Callable[[Attempt], AsyncIterator[None]]
"""The same as an async generator function."""
GiveUpHook = Callable[[Attempt], object]
"""Called for each message that is being set aside."""
PlainGiveUpHook = Callable[[Attempt], None]
"""A hook that is not awaited, as type checkers see it."""


class MiddlewareCall(contextlib.AbstractContextManager[None]):
    """One middleware around an attempt; keeps the attempt's error up to date for the middleware
    outside it."""

    def __init__(self, attempt: Attempt, middleware: Middleware) -> None:
        self._attempt = attempt
        self._context = contextlib.contextmanager(middleware)(attempt)

    def __enter__(self) -> None:
        self._context.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        self._attempt.error = error
        try:
            swallowed = self._context.__exit__(kind, error, trace)
        except BaseException as its_own:
            self._attempt.error = its_own
            raise
        if swallowed:
            self._attempt.error = None
        return swallowed


class AsyncMiddlewareCall(contextlib.AbstractAsyncContextManager[None]):
    """The same for an attempt that is awaited."""

    def __init__(self, attempt: Attempt, middleware: AsyncMiddleware) -> None:
        self._attempt = attempt
        self._context = contextlib.asynccontextmanager(middleware)(attempt)

    async def __aenter__(self) -> None:
        await self._context.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        self._attempt.error = error
        try:
            swallowed = await self._context.__aexit__(kind, error, trace)
        except BaseException as its_own:
            self._attempt.error = its_own
            raise
        if swallowed:
            self._attempt.error = None
        return swallowed


def hook_failed(hook: Callable[..., object], error: BaseException) -> None:
    """Log that a hook raised, which does not affect its message."""
    logger.error("the hook %s raised", name_of(hook), exc_info=error)
