"""How a dead-letter queue that redrive did not make is shown."""

import pytest

from redrive.cli import dead_letter_output
from redrive.pubsub.admin.dead_letter_survey import CountedQueue
from redrive.topology.dead_letter_queues import DeadLetterQueue, Origin


def by_argument(queue: str, *, certain: bool = True) -> Origin:
    return Origin(queue, "argument", certain, "dlx")


@pytest.mark.parametrize(
    ("origins", "shared", "words"),
    [
        ([], False, "unknown"),
        ([by_argument("a")], False, "a by argument"),
        ([by_argument("a"), by_argument("b")], False, "a, b by argument"),
        ([by_argument("a", certain=False)], True, "a by argument, perhaps; perhaps publishers"),
        ([Origin("a", "policy", True, "dlx", None, "p")], False, "a by policy p"),
        ([Origin("a", "name", False)], False, "a by name"),
        (
            [by_argument("a"), Origin("b", "name", False)],
            False,
            "a by argument; b by name",
        ),
        ([by_argument(name) for name in "abcde"], False, "a, b, c by argument; 2 more queues"),
    ],
)
def test_where_messages_come_from_is_said_with_how_it_is_known(
    origins: list[Origin], shared: bool, words: str
) -> None:
    assert (
        dead_letter_output._origins(DeadLetterQueue("q", "", tuple(origins), (), shared)) == words
    )


def test_the_next_command_can_be_pasted_into_a_shell() -> None:
    hostile = DeadLetterQueue("q'; rm -rf ~")
    assert dead_letter_output.next_command(hostile) == "redrive failed groups 'q'\"'\"'; rm -rf ~'"


def test_a_stream_has_no_next_command() -> None:
    assert dead_letter_output.next_command(DeadLetterQueue("q", "stream")) is None


def test_the_fullest_is_first_and_an_unknown_depth_is_last() -> None:
    queues = [
        CountedQueue(DeadLetterQueue(name), messages, 0)
        for name, messages in (("a", None), ("b", 1), ("c", 9), ("d", 1))
    ]
    ordered = dead_letter_output.fullest_first(queues)
    assert [one.queue.name for one in ordered] == ["c", "b", "d", "a"]
