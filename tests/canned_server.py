"""A server that does not listen to what it is told."""

import contextlib
import socket
import threading
from typing import Any

from pika import frame, spec


def framed(method: type[Any], *arguments: object) -> bytes:
    """A method of the connection itself, as a broker sends it."""
    return frame.Method(0, method(*arguments)).marshal()


START = framed(spec.Connection.Start, 0, 9, {}, "PLAIN", "en_US")
TUNE = framed(spec.Connection.Tune, 2047, 131072, 60)
"""How a broker answers the first two things that are said to it."""


class CannedServer:
    """Something that says the same to everyone, and hangs up.

    Args:
        answers: what it says.
        listens: whether it waits for a word before each answer, and before it hangs up.
    """

    def __init__(self, *answers: bytes, listens: bool = False) -> None:
        self._answers = answers
        self._listens = listens
        self._listener = socket.create_server(("127.0.0.1", 0))

    def __enter__(self) -> int:
        threading.Thread(target=self._serve, daemon=True).start()
        port: int = self._listener.getsockname()[1]
        return port

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client, contextlib.suppress(OSError):
                for answer in self._answers:
                    self._listen(client)
                    client.sendall(answer)
                self._listen(client)

    def _listen(self, client: socket.socket) -> None:
        if self._listens:
            client.recv(4096)
