"""Attempts to see a card number in what a command, a worker or a console's process says, though
`REDRIVE_REDACT` names cards."""

import os
import subprocess
import sys
from multiprocessing import Pipe
from pathlib import Path

import pytest

CARD = "4111 1111 1111 1111"
PROGRAM = f"raise ValueError('the card {CARD} was refused')"
SAYS = f"from redrive.redaction import redact; print(redact('the card {CARD}'), flush=True)"


def redrive(*words: str, folder: Path, redact: str) -> subprocess.CompletedProcess[str]:
    silent, parent = os.pipe()  # a worker ends when its parent hangs up
    try:
        return subprocess.run(
            [sys.executable, "-P", "-m", "redrive.cli", *words],
            cwd=folder,
            env={**os.environ, "REDRIVE_REDACT": redact},
            stdin=silent,
            text=True,
            capture_output=True,
            timeout=120,
            check=False,
        )
    finally:
        os.close(silent)
        os.close(parent)


@pytest.mark.parametrize("worker", [[], ["--worker", "1"]], ids=["a command", "a worker"])
def test_what_runs_a_program_shows_no_card(tmp_path: Path, worker: list[str]) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    ended = redrive("run", "shop:app", *worker, folder=tmp_path, redact="card,iban")
    assert ended.returncode == 2
    assert "the card *** was refused" in ended.stderr
    assert CARD not in ended.stderr


def test_a_kind_that_there_is_not_is_said_before_anything_is_done(tmp_path: Path) -> None:
    ended = redrive("status", "shop@orders", folder=tmp_path, redact="cards")
    assert ended.returncode == 2
    assert "'cards' is not a kind of secret; use one of card, iban, jwt" in ended.stderr
    assert "REDRIVE_REDACT=card,iban" in ended.stderr


def test_a_process_that_answers_questions_of_a_console_shows_no_card() -> None:
    own, other = Pipe()
    code = f"from redrive.web.question_process import main; main(); {SAYS}"
    with subprocess.Popen(
        [sys.executable, "-P", "-c", code, str(other.fileno())],
        env={**os.environ, "REDRIVE_REDACT": "card"},
        stdout=subprocess.PIPE,
        pass_fds=(other.fileno(),),
        text=True,
    ) as process:
        other.close()
        own.recv()
        own.close()
        assert process.communicate(timeout=120)[0] == "the card ***\n"
