"""What a trusted proxy says about a request."""

from starlette.datastructures import Headers
from starlette.types import Scope

from redrive.redaction import in_one_line
from redrive.web.auth.access_config import AccessConfig

_SCHEMES = frozenset({"http", "https"})
_LONGEST_NAME = 255


class UntrustedHeader(Exception):
    """A header that can't be trusted; the message says why."""


def believed(scope: Scope, access: AccessConfig) -> tuple[Scope, str]:
    """Return the request as the proxy received it, and the user that the proxy names, or an empty
    string if it names none. Only trusted proxies are believed."""
    headers = Headers(scope=scope)
    peer = str((scope.get("client") or ("", 0))[0])
    if not access.is_proxy(peer):
        if access.trust_header and access.trust_header in headers:
            raise UntrustedHeader("only the proxy may name the user")
        return scope, ""
    seen = dict(scope)
    scheme = _one(headers, "x-forwarded-proto")
    if scheme:
        if scheme.lower() not in _SCHEMES:
            raise UntrustedHeader(f"X-Forwarded-Proto is {in_one_line(scheme)[:40]}")
        seen["scheme"] = scheme.lower()
    host = _one(headers, "x-forwarded-host")
    if host:
        others = [one for one in scope["headers"] if one[0] != b"host"]
        seen["headers"] = [*others, (b"host", host.encode("latin-1"))]
    seen["client"] = (_client(headers, access) or peer, 0)
    return seen, _user(headers, access)


def _client(headers: Headers, access: AccessConfig) -> str:
    """Return the last address that is not a trusted proxy: anything before it may be forged."""
    said = [
        address.strip()
        for line in headers.getlist("x-forwarded-for")
        for address in line.split(",")
        if address.strip()
    ]
    while said and access.is_proxy(said[-1]):
        said.pop()
    return said[-1][:60] if said else ""


def _user(headers: Headers, access: AccessConfig) -> str:
    if not access.trust_header:
        return ""
    # Headers are bytes; proxies encode names outside ASCII as UTF-8.
    raw = _one(headers, access.trust_header)
    try:
        name = raw.encode("latin-1").decode("utf-8").strip()
    except UnicodeError as error:
        raise UntrustedHeader(f"{access.trust_header} is not valid text") from error
    if not name.isprintable() or len(name) > _LONGEST_NAME:
        raise UntrustedHeader(f"{access.trust_header} is not a user name")
    return name


def _one(headers: Headers, name: str) -> str:
    """Return a header that may occur once; empty if it is absent."""
    found = headers.getlist(name)
    if len(found) > 1:
        raise UntrustedHeader(f"{name} was sent {len(found)} times")
    return found[0].strip() if found else ""
