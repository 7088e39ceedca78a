"""The first block of code of a page, pasted into a file and run: only the broker's address is another."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.support import DEADLINE, wait_until

ROOT = Path(__file__).resolve().parents[2]
_ADDRESS = "amqp://guest:guest@localhost/"


def first_block(page: str) -> str:
    """The first block of Python on a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    _, _, rest = text.partition("```python\n")
    block, end, _ = rest.partition("```\n")
    assert end, f"{page} has no block of Python"
    return block


class Pasted:
    """A program that runs; it has to leave in order at SIGTERM."""

    def __init__(self, process: subprocess.Popen[bytes], said: Path) -> None:
        self._process = process
        self._said = said

    def said(self) -> list[str]:
        """The lines that it has printed so far; raises where it has ended."""
        lines = self._said.read_text(encoding="utf-8").splitlines()
        assert self._process.poll() is None, "\n".join(lines)
        return lines


@contextlib.contextmanager
def pasted(page: str, url: str, folder: Path) -> Iterator[Pasted]:
    """The first block of a page, running."""
    block = first_block(page)
    assert block.count(_ADDRESS) == 1
    program, said = folder / "pasted.py", folder / "said.txt"
    program.write_text(block.replace(_ADDRESS, url), encoding="utf-8")
    with said.open("wb") as output:
        process = subprocess.Popen([sys.executable, "-u", str(program)], stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        yield Pasted(process, said)
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 0, said.read_text(encoding="utf-8")
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("times", [1, 2], ids=["fresh", "again"])
def test_the_readmes_first_block_handles_its_own_message(rabbitmq_url: str, tmp_path: Path, times: int) -> None:
    for _ in range(times):
        with pasted("README.md", rabbitmq_url, tmp_path) as program:
            said = wait_until(program.said, "the message is handled")
        assert said == ["welcome, guanyiyao"]


def test_the_page_on_asyncio_handles_all_that_it_publishes(rabbitmq_url: str, tmp_path: Path) -> None:
    wanted = ['handled {"id":121,"name":"guanyiyao"}', *(f"handled {number}" for number in range(1000))]
    with pasted("docs/asyncio.md", rabbitmq_url, tmp_path) as program:
        wait_until(lambda: len(program.said()) >= len(wanted) + 2, "all are handled")
        confirmed, failed, *handled = program.said()

    assert (confirmed, failed) == ("confirmed 1000 not confirmed []", "failed so far 0")
    assert sorted(handled) == sorted(wanted)
