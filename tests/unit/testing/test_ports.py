"""Ports that are given out."""

import subprocess
import sys

import pytest

from redrive.testing import ports
from redrive.testing.ports import free_ports


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """There are but forty ports."""
    lowest = free_ports(1)[0]
    monkeypatch.setattr(ports, "_LOWEST", lowest)
    monkeypatch.setattr(ports, "_HIGHEST", lowest + 40)
    return set(range(lowest, lowest + 40))


def test_a_port_that_was_given_out_is_not_given_out_again(few: set[int]) -> None:
    first = free_ports(3)
    assert set(first) <= few
    assert not set(first) & set(free_ports(3))


def test_a_port_that_one_process_was_given_no_other_is_given(few: set[int]) -> None:
    first = free_ports(3)
    program = (
        "from redrive.testing import ports;"
        f"ports._LOWEST, ports._HIGHEST = {min(few)}, {max(few) + 1};"
        "print(*ports.free_ports(3))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    assert not set(first) & {int(port) for port in done.stdout.split()}


def test_ports_that_were_given_out_long_ago_are_given_out_again(
    few: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "_MOST_RESERVED", 2)
    assert all(set(free_ports(3)) <= few for _ in range(10))
