"""The message that is being handled, for whatever a handler calls: log lines, publishers."""

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
        """What must succeed once the handler has returned, before the message is acked; each gives
        what is to be awaited, where the handler runs on an event loop. None once it has
        returned."""

    def returned(self) -> list[Callable[[], object]]:
        """The handler has returned; gives what is to be done before the ack."""
        acts, self.before_ack = self.before_ack or [], None
        return acts


_current: ContextVar[CurrentAttempt | None] = ContextVar("redrive_message", default=None)


def enter(message: Message, *, is_async: bool) -> Token[CurrentAttempt | None]:
    """Makes a message the current one, of this thread or task; gives what `leave` takes."""
    return _current.set(CurrentAttempt(message, is_async))


def leave(token: Token[CurrentAttempt | None]) -> None:
    """Has the current message be the one of before."""
    handling = _current.get()
    if handling is not None:
        handling.returned()
    _current.reset(token)


current_handling = _current.get
"""The handler that runs in this thread or task; None outside of one."""


def current_message() -> Message | None:
    """The message that is being handled by this thread or task; None outside of a handler.

    A thread that a handler starts has none, unless it is run in the handler's context
    (`contextvars.copy_context().run`), as `asyncio.to_thread` does.
    """
    handling = _current.get()
    return None if handling is None else handling.message
