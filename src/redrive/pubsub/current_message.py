"""The message that is being handled, for whatever a handler calls: log lines, publishers."""

from contextvars import ContextVar

from redrive.pubsub.message import Message

_current: ContextVar[Message | None] = ContextVar("redrive_message", default=None)

enter = _current.set
"""Makes a message the current one, of this thread or task; gives what `leave` takes."""

leave = _current.reset
"""Has the current message be the one of before."""


def current_message() -> Message | None:
    """The message that is being handled by this thread or task; None outside of a handler.

    A thread that a handler starts has none, unless it is run in the handler's context
    (`contextvars.copy_context().run`), as `asyncio.to_thread` does.
    """
    return _current.get()
