"""A broker whose users log in with tokens that expire."""

import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from contract.shells import SHELLS, Shell
from contract.support import Recorder, Service, both_shells
from effort import nightly
from redrive.testing import Broker, private_broker
from waiting import DEADLINE

pytestmark = pytest.mark.versions("how the broker takes a new secret, and what it does without")


class TokenService:
    """An OAuth2 broker, and what signs its tokens.

    A token counts for longer than it says, so that a process that got no processor for some
    seconds still renews it in time.

    Args:
        broker: the broker.
        key: signs.
    """

    TOLD = timedelta(seconds=6)
    COUNTS = timedelta(seconds=30)

    def __init__(self, broker: Broker, key: RSAPrivateKey) -> None:
        self.broker = broker
        self._key = key
        self.given = 0

    def credentials(self) -> tuple[str, str, datetime]:
        """A login with a new token."""
        self.given += 1
        now = datetime.now(UTC)
        return "service", self._token(now + self.COUNTS), now + self.TOLD

    def _token(self, expires: datetime) -> str:
        rights = [f"rabbitmq.{right}:*/*/*" for right in ("configure", "write", "read")]
        claims = {
            "sub": "service",
            "aud": ["rabbitmq"],
            "exp": int(expires.timestamp()),
            "scope": rights,
        }
        parts = [{"alg": "RS256", "typ": "JWT", "kid": "ours"}, claims]
        signed = b".".join(_encoded(json.dumps(part).encode()) for part in parts)
        signature = self._key.sign(signed, PKCS1v15(), SHA256())
        return b".".join([signed, _encoded(signature)]).decode()


def _encoded(value: bytes) -> bytes:
    return urlsafe_b64encode(value).rstrip(b"=")


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenService]:
    key = generate_private_key(public_exponent=65537, key_size=2048)
    folder = tmp_path_factory.mktemp("keys")
    folder.chmod(0o755)
    public = folder / "ours.pem"
    public.write_bytes(
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    config = {
        "auth_backends.1": "rabbit_auth_backend_oauth2",
        "auth_backends.2": "internal",
        "auth_oauth2.resource_server_id": "rabbitmq",
        "auth_oauth2.default_key": "ours",
        "auth_oauth2.signing_keys.ours": str(public),
    }
    with private_broker(
        config=config, plugins=["rabbitmq_auth_backend_oauth2"], folder=folder
    ) as broker:
        yield TokenService(broker, key)


@pytest.mark.parametrize(
    "shell",
    [SHELLS[0], nightly(SHELLS[1], why="a minute; a fake wire renews in both shells")],
    ids=lambda shell: shell.name,
)
def test_a_login_is_renewed_before_it_expires_and_no_connection_is_lost(
    tokens: TokenService, shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service(tokens.broker.url, shell=shell)
    recorder = Recorder()
    with (
        service.subscriber(recorder, credentials=tokens.credentials),
        service.publisher(credentials=tokens.credentials) as publisher,
    ):
        ids = [publisher.publish("socks", "order.paid")]
        # Each of the two connections has logged in by now. Each is to renew twice, and to outlive
        # its first login.
        enough = tokens.given + 4
        over = datetime.now(UTC) + TokenService.COUNTS + timedelta(seconds=2)
        while tokens.given < enough or datetime.now(UTC) < over:
            ids.append(publisher.publish("socks", "order.paid"))
            recorder.wait_for_handled(ids)
            time.sleep(0.2)

    assert recorder.tried.total() == len(ids)
    assert "trying again" not in caplog.text
    assert "to start over" not in caplog.text


@pytest.mark.nightly("a restart of the broker is waited for; logins are renewed each time")
@both_shells
def test_after_a_restart_the_newest_login_counts(tokens: TokenService, shell: Shell) -> None:
    service = Service(tokens.broker.url, shell=shell)
    recorder = Recorder()
    with (
        service.subscriber(recorder, credentials=tokens.credentials),
        service.publisher(credentials=tokens.credentials, timeout=DEADLINE) as publisher,
    ):
        ids = [publisher.publish("socks", "order.paid")]
        # A first login that a broker refuses while it stops would end the subscriber.
        recorder.wait_for_handled(ids)
        for _ in range(2):
            tokens.broker.restart()
            enough = tokens.given + 4
            while tokens.given < enough:
                ids.append(publisher.publish("socks", "order.paid"))
            recorder.wait_for_handled(ids)
    assert service.failed() == []
