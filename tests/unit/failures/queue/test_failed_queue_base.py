"""What services have no use for any more is still there by its former name."""

import pytest

from redrive import AsyncFailedQueue, FailedQueue
from redrive.failures.queue.failed_queue_base import FormerNames

Kind = type[FailedQueue] | type[AsyncFailedQueue]
both_shells = pytest.mark.parametrize("kind", [FailedQueue, AsyncFailedQueue])


@both_shells
@pytest.mark.parametrize("name", ["heard", "listen"])
def test_a_former_name_gives_what_it_gave_with_a_warning(kind: Kind, name: str) -> None:
    failed: FormerNames = kind("amqp://localhost/", "shop@orders")
    with pytest.warns(DeprecationWarning, match=rf"{kind.__name__}\.{name} will be removed"):
        assert getattr(failed, name) == getattr(failed, f"_{name}")


@both_shells
def test_a_name_that_never_was_is_an_attribute_error(kind: Kind) -> None:
    with pytest.raises(AttributeError, match=f"'{kind.__name__}' object has no attribute 'hear'"):
        _ = kind("amqp://localhost/", "shop@orders").hear  # type: ignore[union-attr]
