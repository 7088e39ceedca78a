"""Translate pika's exceptions into redrive's errors."""

import builtins
import re
from collections.abc import Iterator

from pika import exceptions

from redrive.errors import RedriveError
from redrive.pubsub import broker_errors
from redrive.pubsub.url import BrokerURL

_LOST = exceptions.StreamLostError.__name__
_LOST_OVER = re.compile(r"Stream connection lost: (\w+)[(:]")
"""What pika keeps, often only as text, of an exception raised by a socket or while it parsed
received data. Source: pika 1.3.2 and 1.4.4."""
_END_OF_STREAM = "RxEndOfFile"
"""What pika calls an end that OpenSSL or the socket reports without an error, as Python 3.11.2 does
where later ones raise SSLEOFError. Source: pika 1.3.2 and 1.4.4."""


def of_connection(error: BaseException, url: BrokerURL) -> RedriveError:
    """Return the error for a connection that could not be opened, or was lost."""
    causes = list(_causes(error))
    if any(map(_is_unreadable, causes)):
        begins = any(isinstance(cause, exceptions.IncompatibleProtocolError) for cause in causes)
        return (broker_errors.of_foreign_protocol if begins else broker_errors.of_broken_protocol)(
            url
        )
    for cause in causes:
        system = broker_errors.of_system(cause, url)
        if system is not None:
            return system
        match cause:
            case RedriveError():
                return cause
            case (
                exceptions.ProbableAuthenticationError() | exceptions.ProbableAccessDeniedError()
            ) if _LOST in str(cause):
                # pika guesses from how far the opening had come. But RabbitMQ says so when it
                # refuses a login or a virtual host (source: measured on 3.10.8, 4.0.5 and 4.3.6),
                # so an end without a reply means that the connection was cut.
                return broker_errors.of_lost_connection(cause, url)
            case exceptions.ProbableAuthenticationError() | exceptions.AuthenticationError():
                return broker_errors.of_login(url)
            case exceptions.ProbableAccessDeniedError():
                return broker_errors.of_virtual_host(url)
            case exceptions.ConnectionClosedByBroker(reply_code=code, reply_text=text):
                return broker_errors.of_closed_connection(code, text, url)
            case exceptions.IncompatibleProtocolError() if _LOST in str(cause):
                return broker_errors.of_silent_close(url)
            case exceptions.IncompatibleProtocolError():
                return broker_errors.of_foreign_protocol(url)
            case exceptions.AMQPHeartbeatTimeout():
                return broker_errors.of_heartbeat(url)
            # pika's way of ending an opening that takes too long
            case exceptions.ConnectionOpenAborted():
                return broker_errors.of_silence(url)
    if any(
        isinstance(cause, TimeoutError) or "Timeout" in type(cause).__name__ for cause in causes
    ):
        return broker_errors.of_silence(url)
    return broker_errors.of_lost_connection(causes[-1], url)


def is_internal(error: BaseException | None) -> bool:
    """Return whether the broker closed a connection because of an internal error."""
    return (
        isinstance(error, exceptions.ConnectionClosedByBroker)
        and error.reply_code == broker_errors.INTERNAL_ERROR
    )


def of_channel(error: exceptions.ChannelClosedByBroker, what: str) -> RedriveError:
    """Return why the broker closed a channel during `what`, for example `declare queue 'q'`."""
    return broker_errors.of_channel(error.reply_code, error.reply_text, what)


def _is_unreadable(error: BaseException) -> bool:
    """Return whether pika could not parse the received data."""
    over = _LOST_OVER.search(str(error))
    if over is None or over[1] == _END_OF_STREAM or over[1].startswith("SSL"):
        return False
    kind: type = getattr(exceptions, over[1], getattr(builtins, over[1], ValueError))
    return not issubclass(kind, OSError | exceptions.AMQPConnectionError)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those nested in it: pika wraps them in its arguments and in
    `exceptions`."""
    yield error
    nested = [*getattr(error, "exceptions", ()), getattr(error, "exception", None), *error.args]
    for inner in nested:
        if isinstance(inner, BaseException):
            yield from _causes(inner)
