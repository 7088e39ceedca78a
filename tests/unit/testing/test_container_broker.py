from typing import cast

import pytest
from docker.errors import APIError
from docker.models.containers import Container

from redrive.testing.container_broker import ContainerBroker

FROZEN_TOO_SLOWLY = "OCI runtime pause failed: unable to freeze: unknown"


class _Container:
    """A container that says no a number of times.

    Args:
        refusals: what it says, in order.
    """

    def __init__(self, *refusals: str) -> None:
        self._refusals = list(refusals)
        self.paused = False

    def pause(self) -> None:
        """Fails, or is done."""
        if self._refusals:
            raise APIError(self._refusals.pop(0))
        self.paused = True


def broker_in(container: _Container, monkeypatch: pytest.MonkeyPatch) -> ContainerBroker:
    broker = ContainerBroker("rabbitmq:4.3-management")
    monkeypatch.setattr(broker, "_container", lambda: cast("Container", container))
    return broker


def test_a_container_that_could_not_be_frozen_at_once_is_paused_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    container = _Container(FROZEN_TOO_SLOWLY, FROZEN_TOO_SLOWLY)
    broker_in(container, monkeypatch).pause()
    assert container.paused


def test_another_refusal_to_pause_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    container = _Container("no such container")
    with pytest.raises(APIError, match="no such container"):
        broker_in(container, monkeypatch).pause()
    assert not container.paused
