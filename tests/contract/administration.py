"""What only the broker's management API can make or tell: users, permissions, policies,
connections."""

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import httpx

from redrive.testing import Broker
from waiting import wait_until


class Administration:
    """The management API of the broker, for one virtual host.

    Args:
        management_url: where it listens.
        url: the AMQP address whose user asks and whose virtual host is meant.
    """

    def __init__(self, management_url: str, url: str) -> None:
        parts = urlsplit(url)
        self.virtual_host = parts.path[1:]
        self.management_url = management_url
        self._url = url
        self._api = f"{management_url}/api"
        self._login = (parts.username or "guest", parts.password or "guest")

    @contextlib.contextmanager
    def user(
        self,
        name: str,
        *,
        configure: str = ".*",
        write: str = ".*",
        read: str = ".*",
        password: str = "s3cret",
        tags: str = "",
    ) -> Iterator[str]:
        """A user with these permissions in the virtual host, as long as the block; gives the AMQP
        address that logs in as it."""
        self._send("PUT", f"users/{name}", {"password": password, "tags": tags})
        self._send(
            "PUT",
            f"permissions/{self.virtual_host}/{name}",
            {"configure": configure, "write": write, "read": read},
        )
        try:
            yield self.address_of(name, password)
        finally:
            self._send("DELETE", f"users/{name}")

    def unique(self, name: str) -> str:
        """A user's name that no other test has; all have users on one broker."""
        return f"{name}-{self.virtual_host}"

    def set_topic_permission(
        self, user: str, exchange: str, *, write: str, read: str = "^$"
    ) -> None:
        """Restricts a user to some routing keys of a topic exchange, which must be there."""
        self._send(
            "PUT",
            f"topic-permissions/{self.virtual_host}/{user}",
            {"exchange": exchange, "write": write, "read": read},
        )

    def address_of(self, user: str, password: str) -> str:
        """The AMQP address with another user."""
        parts = urlsplit(self._url)
        return urlunsplit(parts._replace(netloc=f"{user}:{password}@{parts.hostname}:{parts.port}"))

    def change_password(self, user: str, password: str) -> None:
        """Gives a user another password."""
        self._send("PUT", f"users/{user}", {"password": password, "tags": ""})

    def set_queue_policy(self, queue: str, definition: Mapping[str, object]) -> None:
        """Sets a policy on the queue of this name alone, which is called as it is."""
        self.set_policy(queue, f"^{re.escape(queue)}$", definition, "queues")

    def has_policies(self, queues: Iterable[str]) -> bool:
        """Whether it tells what policies set on all of these queues: it does seconds later."""
        told = httpx.get(
            f"{self._api}/queues/{quote(self.virtual_host, safe='')}", auth=self._login
        ).json()
        having = {one["name"] for one in told if one.get("effective_policy_definition")}
        return having.issuperset(queues)

    def set_policy(
        self, name: str, pattern: str, definition: Mapping[str, object], apply_to: str
    ) -> None:
        """Sets a policy of the virtual host."""
        self._send(
            "PUT",
            f"policies/{self.virtual_host}/{name}",
            {"pattern": pattern, "definition": definition, "apply-to": apply_to},
        )

    def connection_names(self) -> list[str]:
        """The names that clients gave their connections to the virtual host."""
        return [
            str(
                connection.get("user_provided_name")
                or connection.get("client_properties", {}).get("connection_name")
            )
            for connection in self._get(f"vhosts/{self.virtual_host}/connections")
        ]

    def wait_for_connection(self, name: str) -> None:
        """Waits until a connection of this name is listed."""
        wait_until(
            lambda: name in self.connection_names(), f"the broker lists the connection {name!r}"
        )

    def close_connections(self, name: str) -> int:
        """Closes the connections of this name, as an administrator does; returns how many are
        listed, some of which may be gone already."""
        found = [
            connection["name"]
            for connection in self._get(f"vhosts/{self.virtual_host}/connections")
            if connection.get("user_provided_name") == name
        ]
        for connection in found:
            try:
                self._send("DELETE", f"connections/{quote(connection, safe='')}")
            except httpx.HTTPStatusError as error:
                if error.response.status_code != httpx.codes.NOT_FOUND:  # else it is gone already
                    raise
        return len(found)

    def has_an_alarm(self) -> bool:
        """Whether a node says that it is short of memory or of disk space; seconds late."""
        return any(
            node.get("mem_alarm") or node.get("disk_free_alarm") for node in self._get("nodes")
        )

    def sources_of(self, begins: str) -> dict[str, set[str]]:
        """The exchanges from which the queues are bound whose names begin so; "" stands for the
        default exchange, to which each queue is bound."""
        sources: dict[str, set[str]] = {}
        for binding in self._get(f"bindings/{quote(self.virtual_host, safe='')}"):
            if binding["destination"].startswith(begins):
                sources.setdefault(binding["destination"], set()).add(binding["source"])
        return sources

    def delete(self, path: str) -> None:
        """Deletes what is at a path below `/api/`."""
        self._send("DELETE", path)

    def _get(self, path: str) -> Any:
        return json.loads(self._send("GET", path))

    def _send(self, method: str, path: str, content: Mapping[str, object] | None = None) -> bytes:
        # A local broker is behind no proxy, and has no certificate to verify.
        with httpx.Client(auth=self._login, timeout=120, trust_env=False, verify=False) as client:
            answer = client.request(method, f"{self._api}/{path}", json=content)
            answer.raise_for_status()
            return answer.content


class Memory:
    """The memory of a broker, which can be said to be used up."""

    def __init__(self, broker: Broker, administration: Administration) -> None:
        self._broker = broker
        self._administration = administration

    def use_up(self) -> None:
        """The broker blocks whoever publishes, from when this returns."""
        # It takes note of an alarm a while after it was raised.
        self._broker.control(
            "eval",
            "vm_memory_monitor:set_vm_memory_high_watermark(0.0000001), "
            "Noted = fun Noted() -> case rabbit_alarm:get_alarms() of "
            "[] -> timer:sleep(10), Noted(); _ -> ok end end, Noted().",
        )

    def free(self) -> None:
        """It takes messages again, and the management API says so, from when this returns."""
        # The alarm ends a while later, when the memory is looked at again. A reading of the node
        # that was taken before is copied to where the management API reads up to five seconds
        # later, so that it may say "no alarm" and then that there is one: hence a new reading.
        self._broker.control(
            "eval",
            "vm_memory_monitor:set_vm_memory_high_watermark(0.6), "
            "Noted = fun Noted() -> case rabbit_alarm:get_alarms() of "
            "[] -> ok; _ -> timer:sleep(10), Noted() end end, Noted(), "
            "rabbit_mgmt_external_stats ! emit_update, "
            "sys:get_state(rabbit_mgmt_external_stats, infinity), ok.",
        )
        wait_until(lambda: not self._administration.has_an_alarm(), "the alarm has passed")
