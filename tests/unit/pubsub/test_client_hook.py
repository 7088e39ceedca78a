"""A client that has changed where redrive hooks into it is found when it is imported."""

from importlib import metadata

import pytest

from redrive.pubsub.client_hook import check_hooks


class Client:
    def received(self, data: bytes) -> None: ...


def test_a_client_that_is_as_it_was_passes() -> None:
    check_hooks("pika", ">=1", {Client.received: ["data"]})


@pytest.mark.parametrize(
    "relied_on", [{Client.received: ["data", "more"]}, {None: []}], ids=["another argument", "gone"]
)
def test_a_client_that_has_changed_is_an_error_that_names_its_version(
    relied_on: dict[object, list[str]],
) -> None:
    with pytest.raises(ImportError) as error:
        check_hooks("pika", ">=1.3.2,<=1.4.4", relied_on)  # type: ignore[arg-type]
    assert error.value.name == "pika"
    assert f"pika {metadata.version('pika')} does not work with this redrive" in str(error.value)
    assert "pip install 'pika>=1.3.2,<=1.4.4'" in str(error.value)
