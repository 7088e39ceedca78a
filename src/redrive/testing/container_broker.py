"""A private broker in a container, using testcontainers."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from redrive.errors import BrokerUnavailable, ConfigurationError
from redrive.testing.address import Address
from redrive.testing.broker import (
    CONFIG,
    ERLANG_ARGUMENTS,
    PLUGINS,
    START_SECONDS,
    STOP_SECONDS,
    Broker,
    BrokerKind,
    not_ready,
    rendered_config,
    still_runs,
)
from redrive.testing.membership import Membership
from redrive.testing.ports import free_ports

if TYPE_CHECKING:
    from docker.models.containers import Container  # type: ignore[import-untyped,unused-ignore]
    from testcontainers.core.container import DockerContainer

# The official image and redrive's have the same entry point and the same two configuration paths.
_BOOT = """
printf '%s' "$REDRIVE_CONF" > /etc/rabbitmq/conf.d/90-redrive.conf
printf '%s' "$REDRIVE_PLUGINS" > /etc/rabbitmq/enabled_plugins
if [ -n "$REDRIVE_COOKIE" ]; then
    rm -f /var/lib/rabbitmq/.erlang.cookie
    printf '%s' "$REDRIVE_COOKIE" > /var/lib/rabbitmq/.erlang.cookie
    chmod 400 /var/lib/rabbitmq/.erlang.cookie
fi
exec docker-entrypoint.sh rabbitmq-server
"""
# The data folder is named after the host, and the engine would choose a new host name for each
# container.
_HOST = "redrive"
_HOME = "/var/lib/rabbitmq"
_NOT_FROZEN = "unable to freeze"
_BETWEEN_TRIES = 0.2
_LABEL = "redrive.testing"
_QUICK_DNS = ["timeout:1", "attempts:1"]
"""How nodes resolve each other's names. Docker forwards the name of a killed container to the
host's DNS servers, and if these don't answer, a node waits 20 s for each lookup and loses contact
with the running nodes. Source: measured with Docker 28.2.2 and RabbitMQ 4.3.6; with these options
it is 2 s."""


class ContainerBroker(Broker):
    """A container of a RabbitMQ image, the official one or a compatible one."""

    def __init__(
        self,
        image: str,
        config: Mapping[str, str] | None = None,
        plugins: Sequence[str] = (),
        folder: Path | None = None,
        ports: Sequence[int] = (),
        membership: Membership | None = None,
    ) -> None:
        self._amqp_port, self._management_port = free_ports(2)
        super().__init__(
            Address("127.0.0.1", self._amqp_port), f"http://127.0.0.1:{self._management_port}"
        )
        self.image = image
        self._membership = membership
        # In a network of its own a container is found by its name.
        nodes = f"rabbit@{membership.network}-{{place}}" if membership else f"rabbit@{_HOST}"
        self._node = nodes.format(place=membership.place if membership else 1)
        self._config = {
            # Explicit, because a broker whose management API has a certificate opens no other port.
            "management.tcp.port": "15672",
            **CONFIG,
            **(membership.config(nodes) if membership else {}),
            **(config or {}),
        }
        self._plugins = (*PLUGINS, *plugins)
        self._folder = folder
        self._further_ports = tuple(ports)
        self._made: DockerContainer | None = None

    @property
    def kind(self) -> BrokerKind:
        return "container"

    @property
    def node_name(self) -> str:
        return self._node

    @property
    def origin(self) -> str:
        return f"container {self.image}"

    def start(self) -> None:
        if self._made is None:
            self._make()
        else:
            container = self._container()
            if container.status == "running":
                return
            if container.status == "paused":
                container.unpause()
                return
            container.start()
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self._wait_until_ready(min(deadline, time.monotonic() + 2))
            except BrokerUnavailable:
                if self._container().status == "running" and time.monotonic() < deadline:
                    continue
                raise not_ready(self._address, self.log()) from None
            return

    def stop(self) -> None:
        if self._made is None:
            return
        container = self._container()
        if container.status == "paused":
            container.unpause()
        container.stop(timeout=int(STOP_SECONDS))

    def kill(self) -> None:
        if self._made is None:
            return
        container = self._container()
        if container.status == "paused":
            # cgroup v1 holds signals back until the container is thawed.
            container.unpause()
        elif container.status != "running":
            return
        container.kill()
        container.wait(timeout=STOP_SECONDS)

    def pause(self) -> None:
        from docker.errors import APIError

        container = self._container()
        deadline = time.monotonic() + STOP_SECONDS
        while True:
            try:
                container.pause()
                return
            except APIError as error:
                # On a busy machine the engine does not always freeze all threads at once. Source:
                # measured with Docker 28.2.2 and runc at a load of 10, once in about 150 pauses.
                if _NOT_FROZEN not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(_BETWEEN_TRIES)

    def resume(self) -> None:
        self._container().unpause()

    def control(self, *arguments: str) -> str:
        # As the server's own user: root would leave a cookie file that the server can't read.
        code, output = self._container().exec_run(
            ["rabbitmqctl", *arguments], user="rabbitmq", environment={"HOME": _HOME}
        )
        text = cast("bytes", output).decode(errors="replace")
        if code:
            raise ConfigurationError(f"rabbitmqctl {' '.join(arguments)} failed: {text.strip()}")
        return text

    def log(self) -> str:
        if self._made is None:
            return ""
        return cast("bytes", self._container().logs()).decode(errors="replace")

    def save_data(self, file: Path) -> None:
        container = self._container()
        if container.status != "exited":
            raise still_runs()
        chunks, _ = container.get_archive(_HOME)
        with file.open("wb") as written:
            for chunk in chunks:
                written.write(chunk)

    def close(self) -> None:
        self._forget_exit()
        made, self._made = self._made, None
        if made is not None:
            made.stop(force=True, delete_volume=True)

    def _make(self) -> None:
        from testcontainers.core.container import DockerContainer

        made = DockerContainer(self.image)
        made.with_command(["sh", "-c", _BOOT])
        made.with_env("REDRIVE_CONF", rendered_config(self._config)).with_env(
            "REDRIVE_PLUGINS", f"[{','.join(self._plugins)}].\n"
        ).with_env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", ERLANG_ARGUMENTS)
        host = self._node.partition("@")[2]
        place: dict[str, Any] = {"hostname": host}
        if self._membership is not None:
            made.with_env("REDRIVE_COOKIE", self._membership.cookie)
            made.with_name(host)
            place["network"] = self._membership.network
            place["dns_opt"] = _QUICK_DNS
        made.with_kwargs(**place, labels={_LABEL: "broker"})
        # Fixed ports, because Docker would choose new ones at each start, and on the loopback
        # interface, because this broker is private. testcontainers' own way of binding a port does
        # not take an address.
        ports = cast("dict[str, Any]", made.ports)
        ports["5672/tcp"] = ("127.0.0.1", self._amqp_port)
        ports["15672/tcp"] = ("127.0.0.1", self._management_port)
        for port in self._further_ports:
            ports[f"{port}/tcp"] = ("127.0.0.1", port)
        if self._folder is not None:
            made.with_volume_mapping(str(self._folder), str(self._folder), "ro")
        self._made = made
        self._close_at_exit()
        try:
            made.start()
        except Exception as error:  # shown to the user whatever the engine reports
            self.close()
            raise BrokerUnavailable(
                self._address.label, f"the engine could not start {self.image}: {error}"
            ) from error

    def _container(self) -> "Container":
        if self._made is None:
            raise ConfigurationError("This broker is not running.", "Call start() first.")
        container = self._made.get_wrapped_container()
        container.reload()
        return container
