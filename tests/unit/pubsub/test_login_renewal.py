"""When a connection's login is renewed, and what comes of it where that goes wrong."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from redrive.pubsub.lifecycle import BrokerAccess
from redrive.pubsub.login_renewal import LoginRenewal
from redrive.pubsub.url import Login
from unit.pubsub.fake_wire import EndListener, FakeLink

BEGAN = datetime(2024, 5, 17, 8, tzinfo=UTC)


class Vault:
    """Gives logins, and a link's connection that is told of new passwords."""

    def __init__(self, lifetime: float | None = 60.0) -> None:
        self.lifetime = lifetime
        self.username = "service"
        self.given = 0
        self.failures = 0
        self.told: list[str] = []
        self.questions: list[Callable[[], None]] = []
        """What is to be asked on a thread."""
        self.link = FakeLink(EndListener())
        self.access = BrokerAccess("amqp://localhost/", "test", self.credentials)
        self.renewal = LoginRenewal(
            self.access,
            self.link.call,
            self.link.call_later,
            self.link.reconnect,
            lambda: BEGAN + timedelta(seconds=self.link.now),
            self.questions.append,
        )

    def credentials(self) -> tuple[str, str] | tuple[str, str, datetime]:
        if self.failures:
            self.failures -= 1
            raise OSError("the vault is sealed")
        self.given += 1
        if self.lifetime is None:
            return self.username, "for ever"
        expires = BEGAN + timedelta(seconds=self.link.now + self.lifetime)
        return self.username, f"secret {self.given}", expires

    def connect(self) -> None:
        """A connection is opened."""
        self.renewal.connected(self, self.access.login())

    def update_login(self, password: str) -> None:
        self.told.append(password)

    def answer(self) -> None:
        """It is asked, and answers."""
        self.questions.pop()()
        self.link.run()

    def sleep(self, seconds: float) -> None:
        """Lets time pass after which it is asked."""
        self.link.sleep(seconds)
        self.answer()


@pytest.fixture
def vault() -> Vault:
    vault = Vault()
    vault.connect()
    return vault


def test_a_login_is_renewed_while_a_third_of_its_time_is_left(vault: Vault) -> None:
    vault.link.sleep(39)
    assert vault.questions == []
    vault.sleep(1)
    assert vault.told == ["secret 2"]


def test_it_is_renewed_again_and_again(vault: Vault) -> None:
    for _ in range(3):
        vault.sleep(40)
    assert vault.told == ["secret 2", "secret 3", "secret 4"]


def test_a_login_that_does_not_expire_is_never_renewed() -> None:
    vault = Vault(lifetime=None)
    vault.connect()
    assert not vault.link.waits


def test_one_that_has_expired_is_renewed_a_second_later() -> None:
    vault = Vault(lifetime=-5)
    vault.connect()
    vault.sleep(1)
    assert vault.told == ["secret 2"]


def test_a_vault_that_does_not_answer_is_asked_again(
    vault: Vault, caplog: pytest.LogCaptureFixture
) -> None:
    vault.failures = 1
    vault.sleep(40)
    assert "asking for credentials raised OSError('the vault is sealed')" in caplog.text
    vault.sleep(1)
    assert vault.told == ["secret 2"]


def test_the_same_password_is_not_told_again(vault: Vault) -> None:
    vault.given -= 1
    vault.sleep(40)
    assert vault.told == []
    vault.sleep(40)
    assert vault.told == ["secret 2"]


def test_another_user_needs_another_connection(vault: Vault) -> None:
    vault.username = "successor"
    vault.sleep(40)
    assert vault.link.reconnects == ["successor logs in now in place of service"]
    assert vault.told == []


@pytest.mark.parametrize("when", ["before it is due", "while the vault is asked"])
def test_a_connection_that_is_gone_is_not_renewed(vault: Vault, when: str) -> None:
    if when == "before it is due":
        vault.renewal.disconnected()
        vault.link.sleep(60)
        assert vault.questions == []
    else:
        vault.link.sleep(40)
        vault.renewal.disconnected()
        vault.answer()
    assert vault.told == []


@pytest.mark.parametrize(
    "given",
    [
        ("user", "s3cret", datetime(2030, 1, 1)),
        ("user", "s3cret", 3600),
        ("user", "s3cret", BEGAN, "more"),
        "s3cret",
        None,
    ],
    ids=["no time zone", "seconds", "too many", "a text", "nothing"],
)
def test_what_is_no_login_is_refused_without_a_word_of_it(given: object) -> None:
    access = BrokerAccess("amqp://localhost/", "test", lambda: given)  # type: ignore[arg-type, return-value]
    with pytest.raises(Exception, match="asking for credentials raised") as told:
        access.login()
    assert "s3cret" not in str(told.value)


def test_a_login_is_its_user_password_and_expiry() -> None:
    access = BrokerAccess("amqp://localhost/", "test", lambda: ("user", "password", BEGAN))
    assert access.login() == Login("user", "password", BEGAN)
