import pytest

from redrive.failures.message.dialects.stack import RaisedError, of_java, of_python


@pytest.mark.parametrize(
    ("traceback", "error"),
    [
        (
            (
                'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\n'
                "shop.errors.OutOfStock: no socks\n"
            ),
            RaisedError("shop.errors.OutOfStock", "no socks"),
        ),
        (
            'Traceback (most recent call last):\n  File "a.py", line 1, in f\nKeyError\n',
            RaisedError("KeyError", None),
        ),
        (
            'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: one\ntwo',
            RaisedError("ValueError", "one\ntwo"),
        ),
        (
            (
                'Traceback:\n  File "a.py"\nKeyError: 1\n\nDuring it, another occurred:\n\n'
                'Traceback:\n  File "b.py"\nTypeError: 2\n'
            ),
            RaisedError("TypeError", "2"),
        ),
        ("no traceback at all", RaisedError()),
        ("", RaisedError()),
        (None, RaisedError()),
    ],
)
def test_the_error_of_a_python_traceback_is_at_its_end(
    traceback: str | None, error: RaisedError
) -> None:
    assert of_python(traceback) == error


JAVA = (
    "a.Wrapper: it failed\n\tat a.B.c(B.java:1)\r\n"
    "Caused by: a.b.First: one\r\n\tat a.B.c(B.java:2)\n"
    "Caused by: a.b.Second$Inner: two\n\t... 3 more"
)


def test_the_error_of_a_java_stack_is_the_cause_with_the_text_that_is_known() -> None:
    assert of_java(JAVA, "two") == RaisedError("a.b.Second$Inner", "two")


def test_without_that_text_it_is_the_first_cause() -> None:
    assert of_java(JAVA, "three") == RaisedError("a.b.First", "one")
    assert of_java(JAVA) == RaisedError("a.b.First", "one")


def test_without_a_cause_it_is_the_first_line() -> None:
    assert of_java("a.B: why\n\tat a.B.c(B.java:1)") == RaisedError("a.B", "why")
    assert of_java(None) == RaisedError()
