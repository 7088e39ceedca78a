"""The calls of RabbitMQ's management HTTP API that tests need, using only the standard library."""

import base64
import json
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from urllib.parse import quote

from redrive.errors import BrokerUnavailable, PermissionDenied

# Local brokers are never behind a proxy, whatever proxy the environment sets.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
# A virtual host with thirty quorum queues is deleted in one request, and a busy broker takes time
# for each of them.
_TIMEOUT_SECONDS = 120.0


class AnsweredWithAnError(BrokerUnavailable):
    """Raised when the API reports an error of the broker itself: 500 or above."""


class ManagementClient:
    """The management API of one broker."""

    def __init__(self, url: str, user: str, password: str) -> None:
        self.url = url.rstrip("/")
        self._user = user
        self._login = base64.b64encode(f"{user}:{password}".encode()).decode()

    def put_virtual_host(self, name: str) -> None:
        """Create a virtual host in which the user may do everything. An existing one keeps its
        settings."""
        self._request("PUT", f"vhosts/{quote(name, safe='')}", {})
        rights = {"configure": ".*", "write": ".*", "read": ".*"}
        self._request(
            "PUT", f"permissions/{quote(name, safe='')}/{quote(self._user, safe='')}", rights
        )

    def delete_virtual_host(self, name: str) -> None:
        """Delete a virtual host with everything in it, if it exists."""
        self._request("DELETE", f"vhosts/{quote(name, safe='')}", gone_is_fine=True)

    def get(self, path: str, timeout: float = _TIMEOUT_SECONDS) -> object:
        """Return the API's answer for this path below `/api/`. `timeout` is in seconds."""
        return json.loads(self._request("GET", path, timeout=timeout))

    def wait_until_it_answers(self, deadline: float) -> None:
        """Retry until the API answers."""
        while True:
            try:
                self._request("GET", "overview")
            except BrokerUnavailable:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.05)
            else:
                return

    def _request(
        self,
        method: str,
        path: str,
        body: dict[str, str] | None = None,
        gone_is_fine: bool = False,
        timeout: float = _TIMEOUT_SECONDS,
    ) -> bytes:
        request = urllib.request.Request(f"{self.url}/api/{path}", method=method)
        request.add_header("Authorization", f"Basic {self._login}")
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        try:
            with _direct.open(request, timeout=timeout) as answer:
                read: bytes = answer.read()
                return read
        except urllib.error.HTTPError as error:
            # An HTTPError is also an open response.
            with error:
                if error.code == 404 and gone_is_fine:
                    return b""
                reason = f"{method} {path} was answered with {error.code} {error.reason}"
            if error.code in {401, 403}:
                raise PermissionDenied(
                    reason, f"The user {self._user!r} must have the tag administrator."
                ) from None
            failure = AnsweredWithAnError if error.code >= 500 else BrokerUnavailable
            raise failure(self.url, reason) from None
        except (OSError, HTTPException) as error:
            reason = str(error.reason) if isinstance(error, urllib.error.URLError) else str(error)
            raise BrokerUnavailable(
                self.url, reason, "Check that the management plugin is on, and the host and port."
            ) from error
