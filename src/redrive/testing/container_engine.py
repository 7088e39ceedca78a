"""The container engine on this machine, as testcontainers finds it, and the images in it.

testcontainers is the extra `redrive[testing]`: it is imported where it is used, and what is missing
is no engine.
"""

import socket
import threading
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from testcontainers.core.docker_client import DockerClient

# Most engines answer at once; one that does not is as good as none.
_ANSWER_SECONDS = 10


def engine_answers() -> bool:
    """Whether testcontainers is installed and finds an engine that answers."""
    if find_spec("testcontainers") is None or not _listens():
        return False
    try:
        client = _client(_ANSWER_SECONDS)
    except Exception:  # noqa: BLE001  # whatever the client thinks of an engine that isn't there
        return False
    client.client.close()
    return True


def _listens() -> bool:
    """Whether anybody listens where the engine should be.

    Docker's client leaves a socket open, for the garbage collector to warn of, when it finds
    nobody: don't let it try.
    """
    from testcontainers.core.docker_client import get_docker_host

    url = urlsplit(get_docker_host() or "unix:///var/run/docker.sock")
    try:
        if url.scheme == "unix":
            with socket.socket(socket.AF_UNIX) as wire:
                wire.settimeout(_ANSWER_SECONDS)
                wire.connect(url.path)
        elif url.scheme in {"tcp", "http", "https"}:
            socket.create_connection((url.hostname, url.port or 2375), _ANSWER_SECONDS).close()
    except OSError:
        return False
    return True


def has_image(image: str) -> bool:
    """Whether the engine has this image already."""
    from docker.errors import ImageNotFound  # type: ignore[import-untyped,unused-ignore]

    client = _client(_ANSWER_SECONDS)
    try:
        client.client.images.get(image)
    except ImageNotFound:
        return False
    finally:
        client.client.close()
    return True


def pull_image(image: str, seconds: float) -> str:
    """Pull an image. Return why it could not be had, or nothing when it is there."""
    reasons: list[str] = []

    def pull() -> None:
        try:
            client = _client(int(seconds))
            client.client.images.pull(image)
            client.client.close()
        except Exception as error:  # noqa: BLE001  # a registry can fail in any way: the caller needs to know why
            reasons.append(str(error).strip() or type(error).__name__)

    # The client has no limit for the whole of a pull, and a network that swallows packets answers
    # never.
    thread = threading.Thread(target=pull, name="redrive-pull", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        return f"no answer within {seconds:g} s"
    return reasons[0] if reasons else ""


def create_network(name: str) -> None:
    """Create a network in which containers find each other by their names."""
    client = _client(_ANSWER_SECONDS)
    try:
        client.client.networks.create(name)
    finally:
        client.client.close()


def remove_network(name: str) -> None:
    """Remove a network that has no container any more; one that is gone is no error."""
    from docker.errors import NotFound  # type: ignore[import-untyped,unused-ignore]

    client = _client(_ANSWER_SECONDS)
    try:
        client.client.networks.get(name).remove()
    except NotFound:
        pass
    finally:
        client.client.close()


def _client(seconds: int) -> "DockerClient":
    from testcontainers.core.docker_client import DockerClient

    client = DockerClient(timeout=seconds)
    try:
        client.client.ping()
    except BaseException:
        client.client.close()
        raise
    return client
