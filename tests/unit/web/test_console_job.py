"""What goes between a console and its worker is understood on the other side."""

import json

from redrive.web.console_job import ConsoleJob, Task, TaskKind
from redrive.web.page_request import QueuePlace

PLACE = QueuePlace("shop@orders", literal=True)


def test_a_task_is_one_line_however_it_is_written() -> None:
    task = Task(
        kind=TaskKind.BEGIN,
        id="3f2a",
        url="amqp://guest:guest@localhost/",
        queue="shop\n@orders",
        literal=True,
        family={"main": "master"},
        order={"limit": 3},
        reason="fixed\r\nin 2.3.1 – \u2028",
        operator="ops",
    )
    line = task.encode()
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert Task.decode(line) == task


def test_a_task_names_the_queue_that_it_is_of() -> None:
    assert Task(kind=TaskKind.STOP, id="x", queue=PLACE.name, literal=True).place == PLACE


def test_how_a_job_stands_is_taken_over_and_its_queue_is_not_told() -> None:
    job = ConsoleJob("3f2a", PLACE, planned=12, sent=7, rate=2.5, causes=[("a1", "KeyError", 2)])
    job.tell("the canary is watched")
    told = json.loads(job.encode())
    assert "place" not in told
    taken = ConsoleJob("3f2a", PLACE)
    taken.take(told)
    assert (taken.planned, taken.sent, taken.rate) == (12, 7, 2.5)
    assert taken.notices == ["the canary is watched"]
    assert [tuple(one) for one in taken.causes] == [("a1", "KeyError", 2)]


def test_what_a_job_does_not_know_is_not_taken_over() -> None:
    job = ConsoleJob("3f2a", PLACE, sent=7)
    job.take({"of another version": 1})
    assert job == ConsoleJob("3f2a", PLACE, sent=7)


def test_of_many_notices_the_last_are_kept() -> None:
    job = ConsoleJob("3f2a", PLACE)
    for number in range(100):
        job.tell(str(number))
    assert job.notices == [str(number) for number in range(80, 100)]


def test_notices_that_somebody_reads_do_not_change_meanwhile() -> None:
    job = ConsoleJob("3f2a", PLACE)
    job.tell("one")
    read = job.notices
    job.tell("two")
    assert read == ["one"]
