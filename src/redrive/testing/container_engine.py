"""The container engine on this machine, as found by testcontainers, and its images.

testcontainers is the extra `redrive[testing]`: it is imported where it is used, and without it
there is no engine.
"""

import socket
import threading
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from testcontainers.core.docker_client import DockerClient

# Most engines answer at once; one that does not is treated as missing.
_ANSWER_SECONDS = 10


def engine_answers() -> bool:
    """Return whether testcontainers is installed and finds an engine that answers."""
    if find_spec("testcontainers") is None or not _listens():
        return False
    try:
        client = _client(_ANSWER_SECONDS)
    except Exception:  # noqa: BLE001  # any error means that there is no engine
        return False
    client.client.close()
    return True


def _listens() -> bool:
    """Return whether anything listens at the engine's address.

    If nothing does, Docker's client leaves a socket open, which the garbage collector warns about:
    so don't let the client try.
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
    """Return whether the engine already has this image."""
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
    """Pull an image. Return the reason if that fails, or "" on success."""
    reasons: list[str] = []

    def pull() -> None:
        try:
            client = _client(int(seconds))
            client.client.images.pull(image)
            client.client.close()
        except Exception as error:  # noqa: BLE001  # a registry can fail in any way: the caller needs to know why
            reasons.append(str(error).strip() or type(error).__name__)

    # The client has no time limit for a whole pull, and a network that drops packets never answers.
    thread = threading.Thread(target=pull, name="redrive-pull", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        return f"no answer within {seconds:g} s"
    return reasons[0] if reasons else ""


def create_network(name: str) -> None:
    """Create a network in which containers find each other by name."""
    client = _client(_ANSWER_SECONDS)
    try:
        client.client.networks.create(name)
    finally:
        client.client.close()


def remove_network(name: str) -> None:
    """Remove a network without containers, if it exists."""
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
