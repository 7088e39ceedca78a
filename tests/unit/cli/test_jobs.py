"""`redrive jobs` on a local journal, where no broker answers."""

from pathlib import Path

import pytest

from redrive.cli.__main__ import main
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.jobs.local_journal import LocalJournal

QUEUE = "shop@orders"
NOWHERE = "amqp://guest:guest@127.0.0.1:1/"


@pytest.fixture(autouse=True)
def _no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_URL", NOWHERE)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal of three jobs."""
    path = tmp_path / "journal.sqlite3"
    with LocalJournal(path) as opened:
        for number, kind in enumerate(("expire", "restore", "discard")):
            opened.begin(JobRecord(f"{number}" * 32, kind, QUEUE, "amqp://elsewhere/", sent=7))
    return path


def test_a_list_that_is_cut_says_how_many_there_are(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["jobs", "list", "--limit", "2", "--journal", str(journal)]) == 0
    told = capsys.readouterr().out
    assert "The 2 newest of 3 jobs; --limit 3 shows all." in told


def test_as_json_too_and_beside_it(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["jobs", "list", "--limit", "2", "--journal", str(journal), "--output", "json"])
    printed = capsys.readouterr()
    assert printed.out.startswith("[")
    alone, more = printed.err.splitlines()
    assert alone == (
        "The shared journal at amqp://127.0.0.1:1/%2F can't be used (nothing listens there "
        f"(connection refused)): only the local file {journal} is used, and what is missing in the "
        "shared one is added later."
    )
    assert more == "The 2 newest of 3 jobs; --limit 3 shows all."


def test_a_whole_list_says_nothing_of_the_kind(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["jobs", "list", "--journal", str(journal)])
    assert "newest" not in capsys.readouterr().out


@pytest.mark.parametrize(("id_", "did"), [("0", "deleted"), ("1", "restored"), ("2", "deleted")])
def test_a_job_says_what_it_did_with_its_messages(
    journal: Path, capsys: pytest.CaptureFixture[str], id_: str, did: str
) -> None:
    assert main(["jobs", "show", id_, "--journal", str(journal)]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()].count([did, "7"]) == 1


def test_outcomes_that_are_more_than_the_messages_are_explained(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with LocalJournal(journal) as opened:
        opened.begin(JobRecord("5" * 32, "requeue", QUEUE, "amqp://elsewhere/", sent=7, handled=9))
    assert main(["jobs", "show", "5", "--journal", str(journal)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert "succeeded     7" in shown
    assert "reported twice 2 more outcomes than messages: some were delivered twice" in shown


class JournalOfAnna(LocalJournal):
    """A journal that somebody has open, whom the broker vouches for."""

    @property
    def _user(self) -> str:
        return "anna"


def test_a_job_that_waits_is_not_declined_where_nobody_else_would_see_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "journal.sqlite3"
    with JournalOfAnna(path) as opened:
        opened.ask(JobRecord("job-1", "requeue", QUEUE, "amqp://elsewhere/", planned=7))
    assert main(["jobs", "decline", "job-1", "--journal", str(path)]) == 2
    assert "nobody else would see it" in capsys.readouterr().err
    with LocalJournal(path) as opened:
        assert opened.job("job-1").state is State.ASKED


def test_a_job_that_nobody_runs_is_not_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "journal.sqlite3"
    with LocalJournal(path) as opened:
        opened.begin(JobRecord("job-1", "requeue", QUEUE, "amqp://elsewhere/", planned=7))
    assert main(["jobs", "stop", "job-1", "--journal", str(path)]) == 2
    assert "job job-1 is interrupted: nobody runs it" in capsys.readouterr().err


def test_what_asks_nobody_is_stopped_only_where_it_runs(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["jobs", "stop", "0", "--journal", str(journal)]) == 2
    printed = capsys.readouterr().err
    assert "(expire) is not a requeue, and can only be stopped where it runs" in printed
