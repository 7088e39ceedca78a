"""Where a request comes from, as the browser vouches."""

from starlette.datastructures import Headers
from starlette.types import Scope


def is_navigation(headers: Headers) -> bool:
    """Return whether a browser navigates to the page, as opposed to a script's request; True if the
    browser does not say."""
    return headers.get("sec-fetch-mode", "navigate") == "navigate"


def is_of_own_page(scope: Scope, headers: Headers) -> bool:
    """Return whether the browser vouches that one of the console's own pages sent the request."""
    site = headers.getlist("sec-fetch-site")
    if site:
        return site == ["same-origin"]
    return headers.getlist("origin") == [f"{scope['scheme']}://{headers['host']}"]
