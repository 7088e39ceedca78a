"""The jobs of a journal: which are asked for, and how they are exported."""

import csv
import io

import pytest

from redrive.failures.jobs.job_record import JobRecord, State
from redrive.web.download import download_csv
from redrive.web.journal_page import _EXPORTED, _is_asked_for, _row_of
from redrive.web.page_request import PageRequest

JOBS = [
    JobRecord("1", "requeue", "a@b", "amqp://h", who="bob@desk", program="console", reason="=1+1"),
    JobRecord("2", "spark drain", "a@b", "amqp://h", who="eve@desk", state=State.DONE),
    JobRecord("3", "discard", "c@d", "amqp://h", who="bob@desk", program="command line"),
]


@pytest.mark.parametrize(
    ("asked", "ids"),
    [
        ({}, ["1", "2", "3"]),
        ({"queue": "c@d"}, ["3"]),
        ({"word": "EVE"}, ["2"]),
        ({"word": "spark"}, ["2"]),
        ({"who": "bob@desk", "state": "running"}, ["1", "3"]),
        ({"origin": "Spark"}, ["2"]),
        ({"origin": "console"}, ["1"]),
        ({"kind": "requeue", "state": "done"}, []),
    ],
)
def test_jobs_are_chosen_by_what_people_know(asked: dict[str, str], ids: list[str]) -> None:
    assert [job.id for job in JOBS if _is_asked_for(job, PageRequest(asked))] == ids


def test_an_export_has_a_line_for_each_job_and_no_formula() -> None:
    head, *rows = csv.reader(
        io.StringIO(
            bytes(download_csv(_EXPORTED, map(_row_of, JOBS), "x").body).decode(), newline=""
        )
    )
    first = dict(zip(head, rows[0], strict=True))
    assert len(rows) == 3
    assert (first["origin"], first["reason"], first["state"]) == ("console", "'=1+1", "running")
