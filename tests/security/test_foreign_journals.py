"""A journal that somebody else made runs nothing before people are asked."""

from dataclasses import replace
from pathlib import Path

import pytest

from cli_support import redrive
from redrive.failures.jobs.job_record import JobRecord, State
from redrive.failures.jobs.local_journal import LocalJournal
from redrive.failures.queue.order import Order

URL = "amqp://guest:guest@127.0.0.1:1/"


@pytest.mark.parametrize("name", ["gift_of_somebody:change", "gift_of_somebody:nothing"])
def test_a_function_is_named_and_asked_for_before_its_module_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    ran = tmp_path / "ran"
    (tmp_path / "gift_of_somebody.py").write_text(
        f"open({str(ran)!r}, 'w').close()\n\n\ndef change(message):\n    return message.body\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "journal.sqlite3"
    job = JobRecord(
        "job-1",
        "requeue",
        "shop@orders",
        "amqp://guest@127.0.0.1:1/%2F",
        Order(function=name).as_json(),
    )
    with LocalJournal(path) as journal:
        journal.update(journal.begin(job))
        journal.update(replace(job, state=State.INTERRUPTED))
    done = redrive("jobs", "resume", "job-1", "--journal", str(path), url=URL)
    assert done.code == 2
    assert name in done.err
    assert "there is no terminal to ask at" in done.err
    assert not ran.exists()
