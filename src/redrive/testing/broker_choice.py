"""Choose a private broker that this machine can run."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from redrive.errors import ConfigurationError
from redrive.testing.broker import Broker
from redrive.testing.cluster import Cluster
from redrive.testing.container_broker import ContainerBroker
from redrive.testing.container_engine import engine_answers, has_image, pull_image
from redrive.testing.external_broker import external_broker
from redrive.testing.process_broker import ProcessBroker, server_scripts

# The first is the name for a substitute for the second, which is the official image.
_DEFAULT_IMAGES = ("redrive-rabbitmq:4.3", "rabbitmq:4.3-management")
_PULL_SECONDS = 300.0
# With a server installed there is a fallback, so a network that does not answer is not worth
# waiting for.
_PULL_SECONDS_WITH_A_SERVER = 60.0


def private_broker(
    image: str | None = None,
    *,
    config: Mapping[str, str] | None = None,
    plugins: Sequence[str] = (),
    folder: Path | None = None,
    ports: Sequence[int] = (),
) -> Broker:
    """Choose a RabbitMQ for tests or a demo. It is not started yet: use it as a context manager, or
    call `start()`.

    The first available of these is used: `image`; the broker at REDRIVE_URL; the image named by
    REDRIVE_TEST_IMAGE; a current RabbitMQ in a container, if a container engine answers; the
    `rabbitmq-server` installed on this machine.

    Args:
        image: an image of RabbitMQ, such as `rabbitmq:4.3-management`.
        config: additional lines of `rabbitmq.conf`, such as `{"max_message_size": "1024"}`.
        plugins: plugins to enable besides the usual ones, such as `rabbitmq_auth_mechanism_ssl`.
        folder: a folder with files that `config` refers to, such as certificates. The broker's user
            must be able to read it.
        ports: ports that `config` opens on every interface, such as that of `listeners.ssl.1`. They
            are reachable on the loopback interface.

    Raises:
        ConfigurationError: none of these is available, the image can't be pulled, or `config` or
            `plugins` were given while REDRIVE_URL names a broker.
    """
    if image is None:
        external = external_broker()
        if external is not None:
            if config or plugins:
                raise ConfigurationError(
                    "REDRIVE_URL names an existing broker, but this needs one with its own "
                    "configuration.",
                    "Unset REDRIVE_URL to have a private broker.",
                )
            return external
    found = _found(image)
    if isinstance(found, str):
        return ContainerBroker(found, config, plugins, folder, ports)
    return ProcessBroker(found, config, plugins)


def private_cluster(
    image: str | None = None, *, size: int = 3, config: Mapping[str, str] | None = None
) -> Cluster:
    """Choose RabbitMQ nodes that form one cluster, for tests. They are not started yet: use it as a
    context manager, or call `start()`.

    They are chosen as by `private_broker`, but a broker at REDRIVE_URL is not used.

    Args:
        image: an image of RabbitMQ, such as `rabbitmq:4.3-management`.
        size: the number of nodes.
        config: additional lines of each node's `rabbitmq.conf`.

    Raises:
        ConfigurationError: there is neither a container engine with an image nor a server.
    """
    found = _found(image)
    if isinstance(found, str):
        return Cluster(
            size,
            lambda node: ContainerBroker(found, config, membership=node),
            in_network=True,
        )
    return Cluster(size, lambda node: ProcessBroker(found, config, membership=node))


def _found(image: str | None) -> str | Path:
    """Return the available image of RabbitMQ, or the folder of an installed server's scripts."""
    image = image or os.environ.get("REDRIVE_TEST_IMAGE") or None
    if image is not None:
        return _had(image)
    scripts = server_scripts()
    if engine_answers():
        found = next((candidate for candidate in _DEFAULT_IMAGES if has_image(candidate)), None)
        reason = (
            ""
            if found
            else pull_image(
                _DEFAULT_IMAGES[-1], _PULL_SECONDS_WITH_A_SERVER if scripts else _PULL_SECONDS
            )
        )
        if not reason:
            return found or _DEFAULT_IMAGES[-1]
        if scripts is None:
            raise _not_pulled(_DEFAULT_IMAGES[-1], reason)
    if scripts is not None:
        return scripts
    raise ConfigurationError(
        "No RabbitMQ can be started here: no container engine answers, and no rabbitmq-server is "
        "installed.",
        "Start Docker or Podman and install redrive[testing], install rabbitmq-server, or set "
        "REDRIVE_URL to a running broker.",
    )


def _had(image: str) -> str:
    if not engine_answers():
        raise ConfigurationError(
            f"The image {image} was requested, but no container engine answers.",
            "Start Docker or Podman, install redrive[testing], and set DOCKER_HOST if the "
            "engine is not in its usual place.",
        )
    if not has_image(image):
        reason = pull_image(image, _PULL_SECONDS)
        if reason:
            raise _not_pulled(image, reason)
    return image


def _not_pulled(image: str, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"The container engine has no image {image} and could not pull it: {reason}",
        "Set REDRIVE_TEST_IMAGE to an image it has, install rabbitmq-server, or set REDRIVE_URL "
        "to a running broker.",
    )
