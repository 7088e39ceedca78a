"""Ctrl-C in the middle of a short look at the broker."""

import gc
from typing import Any

import pika
import pytest

from contract.support import Service

ANSWERS = 8
"""More than a look waits for."""


@pytest.mark.timeout(60)
@pytest.mark.filterwarnings(
    "ignore::ResourceWarning"
)  # the socket goes with the process, as a rule
def test_a_look_that_is_interrupted_while_it_takes_in_an_answer_ends_at_once(
    rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(rabbitmq_url)
    service.declare()
    take_in = pika.connection.Connection._on_data_available
    interrupted = []
    for nth in range(ANSWERS):
        left = [nth]

        def interrupt_the_nth(
            self: pika.connection.Connection, data: bytes, left: list[int] = left
        ) -> Any:
            if self.is_open and not left[0]:
                raise KeyboardInterrupt
            left[0] -= self.is_open
            return take_in(self, data)

        monkeypatch.setattr(pika.connection.Connection, "_on_data_available", interrupt_the_nth)
        try:
            service.failed_queue.depth()
        except KeyboardInterrupt:
            interrupted.append(nth)
    gc.collect()

    assert interrupted[:3] == [0, 1, 2]
