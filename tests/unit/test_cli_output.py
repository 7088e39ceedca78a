"""What is asked at a terminal."""

import _thread
import os
import pty
import sys
import threading
import time

import pytest

from redrive.cli.output import Form, Printer


def test_ctrl_c_at_a_question_is_heard_though_it_comes_before_the_read(monkeypatch: pytest.MonkeyPatch) -> None:
    keyboard, terminal = pty.openpty()
    with os.fdopen(terminal) as stdin, os.fdopen(keyboard, "wb", buffering=0) as typing:
        monkeypatch.setattr(sys, "stdin", stdin)
        # As a signal that comes a moment before: it is pending, and interrupts no read. The second one ends a read that waits.
        timers = [threading.Timer(0.3, _thread.interrupt_main), threading.Timer(20, typing.write, [b"yes\n"])]
        for timer in timers:
            timer.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            Printer(Form.TABLE).confirm("Sure?", yes=False)
        assert time.monotonic() - began < 15
        timers[1].cancel()
