"""Translate aiormq's exceptions into redrive's errors."""

from collections.abc import Iterator

from aiormq import exceptions

from redrive.amqp.frames import BadFrame
from redrive.errors import RedriveError
from redrive.pubsub import broker_errors
from redrive.pubsub.aio.wire import ClosedByBroker
from redrive.pubsub.url import BrokerURL


def of_connection(
    error: BaseException | None, url: BrokerURL, *, said_nothing: bool = False
) -> RedriveError:
    """Return the error for a connection that could not be opened, or was lost."""
    if error is None:
        return broker_errors.of_lost_connection(
            "it was closed without notice, or its heartbeats stopped", url
        )
    causes = list(_causes(error))
    for cause in causes:
        system = broker_errors.of_system(cause, url)
        if system is not None:
            return system
    for cause in causes:
        match cause:
            case RedriveError():
                return cause
            case (
                EOFError()
                | ConnectionError()
                | exceptions.IncompatibleProtocolError()
                # Raised by asyncio's own TLS when it aborts a transport that is already gone.
                # Source: seen with Python 3.11.2 when the peer hangs up after the handshake.
                | AttributeError(name="_abort")
            ) if said_nothing:
                return broker_errors.of_silent_close(url)
            case ClosedByBroker(code=code, text=text):
                return broker_errors.of_closed_connection(code, text, url)
            case exceptions.ProbableAuthenticationError() | exceptions.AuthenticationError():
                return broker_errors.of_login(url)
            case exceptions.ConnectionClosed(args=(int(code), str(text))):
                return broker_errors.of_closed_connection(code, text, url)
            case BadFrame():
                return broker_errors.of_broken_protocol(url)
            case (
                exceptions.IncompatibleProtocolError()
                | exceptions.ProtocolSyntaxError()
                | exceptions.InvalidFrameError()
            ):
                return broker_errors.of_foreign_protocol(url)
    if isinstance(error, TimeoutError):
        return broker_errors.of_silence(url)
    return broker_errors.of_lost_connection(error, url)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and its chain of causes."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__
