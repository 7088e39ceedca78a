"""What aiormq's exceptions mean, as errors of ours."""

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
    """Why a connection could not be opened, or was lost."""
    if error is None:
        return broker_errors.of_lost_connection(
            "its end was not announced, or its heartbeats stopped", url
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
                # Of asyncio's own TLS, which is about to abort a transport that is gone already.
                # Source: seen with Python 3.11.2 where the peer hangs up after the handshake.
                | AttributeError(name="_abort")
            ) if said_nothing:
                return broker_errors.of_wordless_end(url)
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
    """An exception, and what it was raised from."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__
