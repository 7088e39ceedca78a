"""An example of a cause: what is shared, and what is its own."""

from hypothesis import given
from hypothesis import strategies as st

from redrive.failures.message.cause import Cause
from redrive.failures.message.cause_example import own_code, parts_of_message, trace_of

TRACE = """Traceback (most recent call last):
  File "/usr/lib/python3.11/site-packages/framework/run.py", line 10, in run
    handler(message)
  File "/srv/shop/orders.py", line 42, in price_of
    return price_of(sku)
  File "/srv/shop/orders.py", line 44, in price_of
    return PRICES[sku]
KeyError: 'x'"""


def test_what_masks_stand_for_is_told_apart() -> None:
    parts = parts_of_message("no plan 'gold' for user 42 at 2026-01-01T10:00:00Z")
    assert [part.text for part in parts if not part.is_shared] == [
        "'gold'",
        "42",
        "2026-01-01T10:00:00Z",
    ]
    assert "".join(part.text for part in parts) == (
        "no plan 'gold' for user 42 at 2026-01-01T10:00:00Z"
    )


def test_of_a_validation_error_nothing_is_said_to_be_shared() -> None:
    text = "1 validation error for User\nname\n  Field required [type=missing]"
    assert not any(part.is_shared for part in parts_of_message(text))


@given(st.text(max_size=200))
def test_whatever_a_text_is_nothing_of_it_is_lost(text: str) -> None:
    assert "".join(part.text for part in parts_of_message(text)) == text


def test_the_innermost_frame_that_the_cause_names_is_told_apart() -> None:
    parts = trace_of(TRACE, Cause("KeyError", "", "shop/orders.py in price_of"))
    assert [part.text.strip() for part in parts if part.is_own_frame] == [
        'File "/srv/shop/orders.py", line 44, in price_of'
    ]
    assert [part.frames for part in parts if part.frames] == [1]
    assert "\n".join(part.text for part in parts) == TRACE


def test_the_frame_is_shown_with_its_own_lines_of_code() -> None:
    parts = trace_of(TRACE, Cause("KeyError", "", "shop/orders.py in price_of"))
    assert own_code(parts).splitlines()[0].startswith('File "/srv/shop/orders.py", line 44')
    assert own_code(parts).splitlines()[1].startswith("  ")
    assert own_code(trace_of(TRACE, Cause("", "", ""))) == ""


def test_without_a_frame_nothing_is_told_apart() -> None:
    assert not any(part.is_own_frame for part in trace_of(TRACE, Cause("", "", "")))
