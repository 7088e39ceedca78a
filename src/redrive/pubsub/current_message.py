"""The message that is being handled, for code that a handler calls, such as log lines and
publishers."""

from collections.abc import Callable
from contextvars import ContextVar, Token

from redrive.pubsub.message import Message


class CurrentAttempt:
    """One run of a handler.

    Args:
        message: the message.
        is_async: whether the handler runs on an event loop.
    """

    __slots__ = ("before_ack", "is_async", "message")

    def __init__(self, message: Message, is_async: bool) -> None:
        self.message = message
        self.is_async = is_async
        self.before_ack: list[Callable[[], object]] | None = []
        """Actions that must succeed after the handler has returned and before the message is acked.
        For a handler on an event loop, each returns an awaitable. None once the handler has
        returned."""

    def returned(self) -> list[Callable[[], object]]:
        """Record that the handler has returned, and return the actions to run before the ack."""
        acts, self.before_ack = self.before_ack or [], None
        return acts


_current: ContextVar[CurrentAttempt | None] = ContextVar("redrive_message", default=None)


def enter(message: Message, *, is_async: bool) -> Token[CurrentAttempt | None]:
    """Make a message the current one of this thread or task; return the token for `leave`."""
    return _current.set(CurrentAttempt(message, is_async))


def leave(token: Token[CurrentAttempt | None]) -> None:
    """Restore the previous current message."""
    handling = _current.get()
    if handling is not None:
        handling.returned()
    _current.reset(token)


current_handling = _current.get
"""Return the handler run of this thread or task; None outside of one."""


def current_message() -> Message | None:
    """Return the message that this thread or task is handling; None outside of a handler.

    A thread that a handler starts has no current message, unless it runs in the handler's context
    (`contextvars.copy_context().run`), as `asyncio.to_thread` does.
    """
    handling = _current.get()
    return None if handling is None else handling.message
