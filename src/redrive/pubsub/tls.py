"""TLS: whom a connection trusts, which certificate it presents, and what its errors mean."""

import logging
import re
import ssl
from collections.abc import Callable, Mapping
from typing import NamedTuple, NoReturn

from redrive.errors import ConfigurationError

logger = logging.getLogger("redrive")

ContextSource = ssl.SSLContext | Callable[[], ssl.SSLContext]
"""The caller's own TLS context, or a function that returns one and is called at each connection."""

FILE_OPTIONS = ("cacertfile", "certfile", "keyfile")
OPTIONS = (*FILE_OPTIONS, "verify")
"""Options of a URL that configure TLS, with RabbitMQ's names."""

_VERIFY = ("verify_peer", "verify_none")
_OWN_CONTEXT = "Give an ssl.SSLContext that has it loaded: ssl_context=."

_WRONG_NAME = (
    "Use a host name that its certificate is valid for, or give the name to check: "
    "?server_name_indication=…"
)
_WRONG_TIME = "Give the broker a certificate that is valid now, and check this machine's clock."
_UNTRUSTED = "Name the CA that signed it, if it is the broker's: ?cacertfile=/etc/ca.pem"
_REMEDIES = {
    9: _WRONG_TIME,
    10: _WRONG_TIME,
    62: _WRONG_NAME,
    64: _WRONG_NAME,
}  # by OpenSSL's X509_V_ERR_…
_NO_TLS = "Check the port (5671 for amqps://), and that the broker has TLS on it."
_NO_COMMON_VERSION = (
    "Have the broker offer TLS 1.2 or newer, or give a context of your own: ssl_context=."
)
_CERTIFICATE = (
    "Give a client certificate that the broker trusts: "
    "?certfile=/etc/client.pem&keyfile=/etc/client.key; the broker's log says more."
)
_REASON = re.compile(r"\[SSL: ([A-Z0-9_]+)\]")
_END = "UNEXPECTED_EOF_WHILE_READING"
_ALERT = re.compile(r"(?:SSL|TLS)V\d+_ALERT_(\w+)")
_ABOUT_CERTIFICATES = (
    "BAD_CERTIFICATE",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_REQUIRED",
    "CERTIFICATE_REVOKED",
    "CERTIFICATE_UNKNOWN",
    "HANDSHAKE_FAILURE",
    "UNKNOWN_CA",
    "UNSUPPORTED_CERTIFICATE",
    "ACCESS_DENIED",
    "DECRYPT_ERROR",
)
_WITHOUT_TLS = (
    "WRONG_VERSION_NUMBER",
    "UNKNOWN_PROTOCOL",
    "HTTP_REQUEST",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH_TOO_LONG",
)
_OTHER_VERSIONS = (
    "UNSUPPORTED_PROTOCOL",
    "NO_PROTOCOLS_AVAILABLE",
    "TLSV1_ALERT_PROTOCOL_VERSION",
    "VERSION_TOO_LOW",
)


class Failure(NamedTuple):
    """Why TLS failed.

    Args:
        reason: what was found, worded to follow a colon.
        remedy: what to do about it.
        code: OpenSSL's code for the problem with the peer's certificate; 0 if it is something else.
    """

    reason: str
    remedy: str
    code: int = 0


def check_options(options: Mapping[str, str]) -> None:
    """Refuse invalid TLS options of a URL."""
    verify = options.get("verify", _VERIFY[0])
    if verify not in _VERIFY:
        raise ConfigurationError(
            f"the URL has verify={verify!r}", f"Give {_VERIFY[0]} (the default) or {_VERIFY[1]}."
        )
    if "keyfile" in options and "certfile" not in options:
        raise ConfigurationError(
            "the URL has a keyfile and no certfile",
            "Name the certificate that the key belongs to: certfile=….",
        )


def tls_context(options: Mapping[str, str]) -> ssl.SSLContext:
    """Return the TLS settings for the options of a URL, from the current files. Without a CA, the
    system's CAs are trusted."""
    check_options(options)
    for option in FILE_OPTIONS:
        if option in options:
            _check_readable(option, options[option])
    try:
        context = ssl.create_default_context(cafile=options.get("cacertfile"))
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"the cacertfile {options.get('cacertfile')!r} holds no certificate that can be read",
            "Give a file in PEM format.",
        ) from error
    if "certfile" in options:
        _load_client_certificate(context, options["certfile"], options.get("keyfile"))
    if options.get("verify") == "verify_none":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _check_readable(option: str, path: str) -> None:
    try:
        with open(path, "rb"):
            pass
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigurationError(
            f"the {option} {path!r} of the URL can't be read: {why}",
            "Check the path and who may read it.",
        ) from error


def _load_client_certificate(context: ssl.SSLContext, certificate: str, key: str | None) -> None:
    where = f"the keyfile {key!r}" if key is not None else f"the certfile {certificate!r}"

    def refuse() -> NoReturn:
        # Without this, OpenSSL would prompt on the terminal.
        raise ConfigurationError(
            f"the private key in {where} is encrypted, and a URL has no place for its password",
            _OWN_CONTEXT,
        )

    try:
        context.load_cert_chain(certificate, key, password=refuse)
    except (OSError, ssl.SSLError) as error:
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            problem = (
                f"the private key in {where} does not belong to the certificate in {certificate!r}"
            )
        elif not _holds_a_key(key if key is not None else certificate):
            problem = f"{where} holds no private key"
        else:
            problem = (
                f"the certfile {certificate!r} and its key can't be used "
                f"({getattr(error, 'reason', None) or error})"
            )
        raise ConfigurationError(
            problem,
            "Give both in PEM format: certfile=… and keyfile=…, or a certfile that holds both.",
        ) from error


def _holds_a_key(path: str) -> bool:
    with open(path, "rb") as file:
        return b"PRIVATE KEY-----" in file.read()


def warn_of_no_check(where: str, options: Mapping[str, str]) -> None:
    """Log a warning, once, if certificates are not checked."""
    if options.get("verify") == "verify_none":
        warn_once(
            f"{where}: verify=verify_none, so no certificate is checked: whoever answers there "
            "can read everything"
        )


_warned: set[str] = set()


def warn_once(text: str) -> None:
    """Log a warning, but only the first time in this process."""
    if text not in _warned:
        _warned.add(text)
        logger.warning("%s", text)


def failure_of(error: ssl.SSLError) -> Failure:
    """Explain a TLS error."""
    if isinstance(error, ssl.SSLCertVerificationError):
        found = error.verify_message.rstrip(".") if error.verify_message else str(error)
        return Failure(
            f"its certificate is not trusted ({found})",
            _REMEDIES.get(error.verify_code, _UNTRUSTED),
            error.verify_code,
        )
    if isinstance(error, ssl.SSLEOFError):
        return Failure("it closed the TLS connection without an answer", _NO_TLS)
    return failure_of_text(str(error)) or Failure(f"TLS failed ({error.reason or error})", _NO_TLS)


def failure_of_text(text: str) -> Failure | None:
    """Explain a TLS error of which only the text is left; None if it is not one, or only says that
    the connection has ended."""
    found = _REASON.search(text)
    if found is None or found[1] == _END:
        return None
    reason = found[1]
    alert = _ALERT.fullmatch(reason)
    if reason in _WITHOUT_TLS:
        return Failure("what answers there does not speak TLS", _NO_TLS)
    if reason in _OTHER_VERSIONS:
        return Failure(
            f"it speaks no version of TLS that this machine accepts ({reason})", _NO_COMMON_VERSION
        )
    if alert is not None and alert[1] in _ABOUT_CERTIFICATES:
        words = alert[1].replace("_", " ").lower().replace("unknown ca", "unknown CA")
        return Failure(
            f"it refused the client certificate, or asks for one (TLS alert: {words})", _CERTIFICATE
        )
    return Failure(f"TLS failed ({reason})", _NO_TLS)


CLOSED_AFTER_HANDSHAKE = Failure(
    "it closed the connection right after the TLS handshake: it asks for a client certificate or "
    "refuses the one given, "
    "or it does not speak AMQP",
    _CERTIFICATE,
)
