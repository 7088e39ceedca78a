"""What an asyncio client's errors say of a connection."""

from redrive.pubsub.aio.client_errors import of_connection
from redrive.pubsub.url import BrokerURL


def test_a_peer_that_hangs_up_while_tls_is_about_to_end_has_hung_up() -> None:
    gone = AttributeError("'NoneType' object has no attribute '_abort'", name="_abort")
    url = BrokerURL.parse("amqps://localhost")
    told = str(of_connection(gone, url, said_nothing=True))
    assert "closed the connection right after the TLS handshake" in told
    assert "the connection was lost" in str(of_connection(gone, url))
