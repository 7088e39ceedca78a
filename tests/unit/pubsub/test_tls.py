"""The files of a TLS connection, and what is said of one that can't be used."""

import logging
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from redrive.errors import ConfigurationError
from redrive.pubsub import tls
from redrive.pubsub.lifecycle import BrokerAccess


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA, a client's certificate and key, apart and in one file, another key, and the key
    encrypted."""
    folder = tmp_path_factory.mktemp("tls")
    ca = trustme.CA()
    client, other = ca.issue_cert("client"), ca.issue_cert("other")
    ca.cert_pem.write_to_path(folder / "ca.pem")
    client.cert_chain_pems[0].write_to_path(folder / "client.pem")
    client.private_key_pem.write_to_path(folder / "client.key")
    client.private_key_and_cert_chain_pem.write_to_path(folder / "both.pem")
    other.private_key_pem.write_to_path(folder / "other.key")
    key = serialization.load_pem_private_key(client.private_key_pem.bytes(), None)
    encryption = serialization.BestAvailableEncryption(b"secret")
    encrypted = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )
    (folder / "encrypted.key").write_bytes(encrypted)
    (folder / "empty.pem").write_text("nothing\n")
    return folder


def refusal(folder: Path, **options: str) -> str:
    """Why files are refused."""
    with pytest.raises(ConfigurationError) as told:
        tls.tls_context({name: str(folder / path) for name, path in options.items()})
    return told.value.problem.replace(f"{folder}/", "")


def test_certificate_and_key_may_be_apart_or_in_one_file(files: Path) -> None:
    for options in ({"certfile": "client.pem", "keyfile": "client.key"}, {"certfile": "both.pem"}):
        assert tls.tls_context({name: str(files / path) for name, path in options.items()})


@pytest.mark.parametrize("missing", ["cacertfile", "certfile", "keyfile"])
def test_the_file_that_is_missing_is_named(files: Path, missing: str) -> None:
    options = {"cacertfile": "ca.pem", "certfile": "client.pem", "keyfile": "client.key"} | {
        missing: "gone.pem"
    }

    assert (
        refusal(files, **options)
        == f"the {missing} 'gone.pem' of the URL can't be read: No such file or directory"
    )


def test_a_folder_in_place_of_a_file_is_named(files: Path) -> None:
    assert "of the URL can't be read: Is a directory" in refusal(files, cacertfile=".")


def test_a_ca_file_without_a_certificate_is_named(files: Path) -> None:
    assert (
        refusal(files, cacertfile="empty.pem")
        == "the cacertfile 'empty.pem' holds no certificate that can be read"
    )


def test_a_certificate_without_its_key_is_said(files: Path) -> None:
    assert refusal(files, certfile="client.pem") == "the certfile 'client.pem' holds no private key"


def test_a_key_of_another_certificate_is_said(files: Path) -> None:
    problem = refusal(files, certfile="client.pem", keyfile="other.key")

    assert (
        problem
        == "the private key in the keyfile 'other.key' does not belong to the certificate in "
        "'client.pem'"
    )


def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_its_password(files: Path) -> None:
    # In a process of its own with no terminal to ask at, and a deadline: OpenSSL would wait at
    # /dev/tty.
    program = (
        "import sys\nfrom redrive import ConfigurationError, Publisher\n"
        "try:\n    Publisher(sys.argv[1])\nexcept ConfigurationError as error:\n    print(error)"
    )
    url = f"amqps://localhost/?certfile={files / 'client.pem'}&keyfile={files / 'encrypted.key'}"
    done = subprocess.run(
        [sys.executable, "-c", program, url],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert "is encrypted" in done.stdout
    assert "ssl_context=" in done.stdout
    assert "PEM pass phrase" not in done.stdout + done.stderr


def test_a_context_of_ones_own_may_hold_an_encrypted_key(files: Path) -> None:
    context = ssl.create_default_context(cafile=str(files / "ca.pem"))
    context.load_cert_chain(files / "client.pem", files / "encrypted.key", password="secret")

    assert BrokerAccess("amqps://localhost/", "test", ssl_context=context).tls() is context


def test_a_context_is_made_at_each_connection(files: Path) -> None:
    destination = BrokerAccess(f"amqps://localhost/?cacertfile={files / 'ca.pem'}", "test")
    made = BrokerAccess("amqps://localhost/", "test", ssl_context=ssl.create_default_context)

    assert destination.tls() is not destination.tls()
    assert made.tls() is not made.tls()


def test_a_context_without_tls_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not encrypted"):
        BrokerAccess("amqp://localhost/", "test", ssl_context=ssl.create_default_context())


def test_a_context_beside_files_is_refused(files: Path) -> None:
    with pytest.raises(ConfigurationError, match="the URL has cacertfile"):
        BrokerAccess(
            f"amqps://localhost/?cacertfile={files / 'ca.pem'}",
            "test",
            ssl_context=ssl.create_default_context(),
        )


def test_what_is_no_context_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="ssl_context is 'yes'"):
        BrokerAccess("amqps://localhost/", "test", ssl_context="yes")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="returned str"):
        BrokerAccess("amqps://localhost/", "test", ssl_context=lambda: "yes").tls()  # type: ignore[arg-type]


def test_a_login_by_certificate_needs_a_certificate() -> None:
    with pytest.raises(ConfigurationError, match="no client certificate"):
        BrokerAccess("amqps://localhost/?auth_mechanism=external", "test")


def test_a_login_by_certificate_takes_no_credentials(files: Path) -> None:
    url = f"amqps://localhost/?auth_mechanism=external&certfile={files / 'both.pem'}"
    with pytest.raises(ConfigurationError, match="credentials are given"):
        BrokerAccess(url, "test", credentials=lambda: ("user", "password"))


def test_verify_none_is_warned_of_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "_warned", set())
    caplog.set_level(logging.WARNING)
    for _ in range(3):
        BrokerAccess("amqps://warned-of-once/?verify=verify_none", "test")

    assert caplog.text.count("no certificate is checked") == 1
