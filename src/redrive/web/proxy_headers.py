"""What a proxy in front of a console says of a request: whose it is, by which name, and whether it
came encrypted."""

from starlette.datastructures import Headers
from starlette.types import Scope

from redrive.redaction import in_one_line
from redrive.web.access_config import AccessConfig

_SCHEMES = frozenset({"http", "https"})
_LONGEST_NAME = 255


class UntrustedHeader(Exception):
    """What was said can't be believed; the text says why."""


def believed(scope: Scope, access: AccessConfig) -> tuple[Scope, str]:
    """The request as it came to the proxy, and who the proxy says it is of; empty where nobody says
    that. What somebody else than a trusted proxy says is not believed.

    Raises:
        UntrueWord: the proxy says it twice, or what can't be; or somebody else says who he is.
    """
    headers = Headers(scope=scope)
    peer = str((scope.get("client") or ("", 0))[0])
    if not access.is_proxy(peer):
        if access.trust_header and access.trust_header in headers:
            raise UntrustedHeader("who you are is believed only of the proxy in front")
        return scope, ""
    seen = dict(scope)
    scheme = _one(headers, "x-forwarded-proto")
    if scheme:
        if scheme.lower() not in _SCHEMES:
            raise UntrustedHeader(f"{'X-Forwarded-Proto'} is {in_one_line(scheme)[:40]}")
        seen["scheme"] = scheme.lower()
    host = _one(headers, "x-forwarded-host")
    if host:
        others = [one for one in scope["headers"] if one[0] != b"host"]
        seen["headers"] = [*others, (b"host", host.encode("latin-1"))]
    seen["client"] = (_client(headers, access) or peer, 0)
    return seen, _user(headers, access)


def _client(headers: Headers, access: AccessConfig) -> str:
    """Whom the last proxy that is trusted has seen: what stands before that may be made up."""
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
    # A header holds bytes; whoever puts a name with letters of other alphabets in one sends UTF-8.
    raw = _one(headers, access.trust_header)
    try:
        name = raw.encode("latin-1").decode("utf-8").strip()
    except UnicodeError as error:
        raise UntrustedHeader(f"{access.trust_header} is no text") from error
    if not name.isprintable() or len(name) > _LONGEST_NAME:
        raise UntrustedHeader(f"{access.trust_header} is no name")
    return name


def _one(headers: Headers, name: str) -> str:
    """A header that may be there once; empty where it is not."""
    found = headers.getlist(name)
    if len(found) > 1:
        raise UntrustedHeader(f"{name} came {len(found)} times")
    return found[0].strip() if found else ""
