"""`redrive failed try` runs a handler over copies of failed messages, and asks before it does."""

import signal
from pathlib import Path

import pytest

from cli_support import Terminal, depth_of, give_up_on, redrive, running
from waiting import wait_until

QUEUE = "ucenter@user"
PROGRAM = """
import contextlib, pathlib, time

def handle(message):
    if message.body == b"3":
        raise KeyError("plan")

def slow(message):
    pathlib.Path("begun-" + message.body.decode()).touch()
    if message.body == b"2":
        time.sleep(1000)

@contextlib.contextmanager
def undone(message):
    yield
"""
HANDLER = ("--handler", "shop:handle")


@pytest.fixture
def failed(rabbitmq_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A failed queue with three messages, and the program that is mended."""
    (tmp_path / "shop.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    give_up_on(rabbitmq_url, QUEUE, [1, 2, 3])
    return rabbitmq_url


def test_it_tells_how_many_would_succeed_and_moves_nothing(failed: str) -> None:
    done = redrive("failed", "try", QUEUE, *HANDLER, "--yes", "--junit", "junit.xml", url=failed)
    assert done.code == 1
    assert "2 of 3 would succeed; 1 fail: 1 with a new one." in done.out
    assert "KeyError: 'plan'" in done.out
    assert 'failures="1"' in Path("junit.xml").read_text()
    assert depth_of(failed, QUEUE)["failed"] == 3


def test_where_all_would_succeed_it_exits_with_0(failed: str) -> None:
    chosen = ("--where", "body < 3", "--output", "json", "--within", "shop:undone")
    done = redrive("failed", "try", QUEUE, *HANDLER, *chosen, url=failed)
    assert (done.code, done.json()["succeed"], done.json()["tried"]) == (0, 2, 2)
    assert {one["result"] for one in done.json()["results"]} == {"succeeds"}


def test_only_what_would_succeed_is_requeued_and_the_journal_says_what_was_rehearsed(
    failed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDRIVE_SERVICE_VERSION", "1.4.2")
    done = redrive("failed", "try", QUEUE, *HANDLER, "--yes", "--output", "json", url=failed)
    Path("tried.json").write_text(done.out)
    words = ("--rehearsed", "tried.json", "--journal", str(tmp_path / "journal.db"), "--yes")
    assert redrive("failed", "requeue", QUEUE, *words, url=failed).code == 0
    assert depth_of(failed, QUEUE)["failed"] == 1
    jobs = redrive("jobs", "list", "--journal", str(tmp_path / "journal.db"), url=failed)
    assert "rehearsed with 1.4.2 at " in jobs.out
    assert "2 of 3 would succeed" in jobs.out
    broken = redrive("failed", "requeue", QUEUE, "--rehearsed", "shop.py", url=failed)
    assert (broken.code, "shop.py is no report of a rehearsal" in broken.err) == (2, True)


def test_with_nobody_to_ask_it_needs_yes_or_a_context(failed: str) -> None:
    done = redrive("failed", "try", QUEUE, *HANDLER, url=failed)
    assert done.code == 2
    assert "other effects of the handler are real" in done.err


def test_at_a_terminal_it_asks(failed: str) -> None:
    with Terminal("failed", "try", QUEUE, *HANDLER, url=failed) as terminal:
        terminal.wait_for("[y/N]")
        terminal.type("n\n")
        terminal.wait_for("Nothing was tried.")
        assert terminal.end() == 1


def test_messages_of_an_archive_need_no_broker(failed: str) -> None:
    redrive("failed", "snapshot", QUEUE, "-o", "kept.jsonl", url=failed)
    nowhere = "amqp://nobody.invalid/"
    files = ("--archive", "kept.jsonl", "--limit", "2", "--yes")
    done = redrive("failed", "try", QUEUE, *HANDLER, *files, url=nowhere)
    assert (done.code, "2 of 2 would succeed." in done.out) == (0, True)
    assert "Trying the 2 oldest of 3 messages; --limit 3 tries all." in done.err
    other = redrive("failed", "try", "shop@mail", *HANDLER, *files, url=nowhere)
    assert "No message of kept.jsonl matches: nothing to try." in other.out


def test_an_interrupt_ends_it_with_what_is_known_so_far(failed: str, tmp_path: Path) -> None:
    redrive("failed", "snapshot", QUEUE, "-o", "kept.jsonl", url=failed)
    words = ("--handler", "shop:slow", "--archive", "kept.jsonl", "--jobs", "1", "--yes")
    with running(
        "failed", "try", QUEUE, *words, "--output", "json", url=failed, cwd=str(tmp_path)
    ) as process:
        wait_until(lambda: Path("begun-2").exists(), "the second message is being tried")
        process.signal(signal.SIGINT)
        done = process.end()
    assert (done.code, done.json()["tried"]) == (1, 1)
    assert done.json()["stopped"] == "Interrupted: the rest was not tried"
