"""What pika says of a connection, in words that help."""

from pika.exceptions import IncompatibleProtocolError

from redrive.pubsub.blocking.client_errors import of_connection
from redrive.pubsub.url import BrokerURL


def test_an_end_that_no_layer_calls_an_error_is_an_end() -> None:
    """As the TLS of Python 3.11.2 leaves it to pika."""
    end = "Stream connection lost: RxEndOfFile(-1, 'End of input stream (EOF)')"
    error = IncompatibleProtocolError(f"StreamLostError: ({end!r},)")
    said = str(of_connection(error, BrokerURL.parse("amqps://u:p@localhost/")))
    assert "closed the connection right after the TLS handshake" in said
