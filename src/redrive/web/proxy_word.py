"""What a proxy in front of a console says of a request: whose it is, by which name, and whether it
came encrypted."""

from starlette.datastructures import Headers
from starlette.types import Scope

from redrive.redaction import in_one_line
from redrive.web.reach import Reach

_SCHEMES = frozenset({"http", "https"})
_LONGEST_NAME = 255


class UntrueWord(Exception):
    """What was said can't be believed; the text says why."""


def believed(scope: Scope, reach: Reach) -> tuple[Scope, str]:
    """The request as it came to the proxy, and who the proxy says it is of; empty where nobody says
    that. What somebody else than a trusted proxy says is not believed.

    Raises:
        UntrueWord: the proxy says it twice, or what can't be; or somebody else says who he is.
    """
    headers = Headers(scope=scope)
    peer = str((scope.get("client") or ("", 0))[0])
    if not reach.is_proxy(peer):
        if reach.trust_header and reach.trust_header in headers:
            raise UntrueWord("who you are is believed only of the proxy in front")
        return scope, ""
    seen = dict(scope)
    scheme = _one(headers, "x-forwarded-proto")
    if scheme:
        if scheme.lower() not in _SCHEMES:
            raise UntrueWord(f"{'X-Forwarded-Proto'} is {in_one_line(scheme)[:40]}")
        seen["scheme"] = scheme.lower()
    host = _one(headers, "x-forwarded-host")
    if host:
        others = [one for one in scope["headers"] if one[0] != b"host"]
        seen["headers"] = [*others, (b"host", host.encode("latin-1"))]
    seen["client"] = (_client(headers, reach) or peer, 0)
    return seen, _user(headers, reach)


def _client(headers: Headers, reach: Reach) -> str:
    """Whom the last proxy that is trusted has seen: what stands before that may be made up."""
    said = [
        address.strip()
        for line in headers.getlist("x-forwarded-for")
        for address in line.split(",")
        if address.strip()
    ]
    while said and reach.is_proxy(said[-1]):
        said.pop()
    return said[-1][:60] if said else ""


def _user(headers: Headers, reach: Reach) -> str:
    if not reach.trust_header:
        return ""
    # A header holds bytes; whoever puts a name with letters of other alphabets in one sends UTF-8.
    raw = _one(headers, reach.trust_header)
    try:
        name = raw.encode("latin-1").decode("utf-8").strip()
    except UnicodeError as error:
        raise UntrueWord(f"{reach.trust_header} is no text") from error
    if not name.isprintable() or len(name) > _LONGEST_NAME:
        raise UntrueWord(f"{reach.trust_header} is no name")
    return name


def _one(headers: Headers, name: str) -> str:
    """A header that may be there once; empty where it is not."""
    found = headers.getlist(name)
    if len(found) > 1:
        raise UntrueWord(f"{name} came {len(found)} times")
    return found[0].strip() if found else ""
