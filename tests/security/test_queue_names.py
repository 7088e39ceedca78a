"""A queue's name, which whoever may declare queues chooses, is one part of a path and no more."""

from pathlib import PurePosixPath

import pytest

from redrive.spark_reprocess.archive import escaped


@pytest.mark.parametrize(
    "name",
    [
        "../../outside",
        "/etc/passwd",
        "..",
        ".",
        "a/../../b",
        "..\\..\\b",
        "%2e%2e/b",
        "a=b/queue=c",
        "\0",
        "\n",
        "~",
        "$HOME",
        "*",
    ],
)
def test_a_queue_s_folder_stays_in_the_archive(name: str) -> None:
    folder = PurePosixPath("messages") / f"queue={escaped(name)}" / "run=1"
    assert len(folder.parts) == 3
    assert ".." not in folder.parts


def test_two_queues_have_two_folders() -> None:
    names = ["a/b", "a%2Fb", "a%252Fb", "a b", "a=b", "a:b"]
    assert len({escaped(name) for name in names}) == len(names)
