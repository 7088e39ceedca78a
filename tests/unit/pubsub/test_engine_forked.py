"""A process that a handler has forked ends when it comes back from the handler."""

import os
import sys

import pytest

from redrive.pubsub.engine import end_child


class Ended(BaseException):
    """The process would have ended with this code."""


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (None, 0, ""),
        (SystemExit(), 0, ""),
        (SystemExit(3), 3, ""),
        (SystemExit(-1), 255, ""),
        (SystemExit("no disk"), 1, "no disk"),
        (KeyboardInterrupt(), 1, "KeyboardInterrupt"),
        (ValueError("no such user"), 1, "ValueError: no such user"),
    ],
    ids=repr,
)
def test_it_ends_as_python_ends_what_has_raised_that(
    error: BaseException | None,
    code: int,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    codes: list[int] = []

    def exit_(code: int) -> None:
        codes.append(code)
        raise Ended

    monkeypatch.setattr(os, "_exit", exit_)
    with pytest.raises(Ended):
        end_child(error)
    assert codes == [code]
    assert told in capsys.readouterr().err


def test_without_standard_streams_it_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(os, "_exit", lambda _: (_ for _ in ()).throw(Ended()))
    with pytest.raises(Ended):
        end_child(None)
