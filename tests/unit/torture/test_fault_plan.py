from collections import Counter
from itertools import islice

import pytest

from torture.fault_plan import KINDS, OF_A_CLUSTER, Fault, Targets, fault_plan, kinds_for

TARGETS = Targets(nodes=3, workers=4, publishers=2, operators=2, lanes=6)


def first(count: int, seed: int = 7, targets: Targets = TARGETS) -> list[Fault]:
    return list(islice(fault_plan(seed, targets), count))


def test_the_same_seed_gives_the_same_faults() -> None:
    assert first(200) == first(200)


def test_another_seed_gives_others() -> None:
    assert first(50, seed=1) != first(50, seed=2)


def test_a_short_run_sees_every_kind() -> None:
    assert {fault.kind for fault in first(len(KINDS) + 4)} == set(KINDS)


def test_one_node_alone_is_neither_cut_off_nor_deposed() -> None:
    faults = first(100, targets=Targets())
    assert not {fault.kind for fault in faults} & set(OF_A_CLUSTER)
    assert {fault.kind for fault in faults} == set(kinds_for(1))


def test_each_target_is_there_and_each_is_hit() -> None:
    hit = Counter((fault.kind, fault.target) for fault in first(600))
    for kind in KINDS:
        assert {target for of, target in hit if of == kind} == set(range(TARGETS.of(kind)))


def test_some_processes_die_while_something_else_is_broken() -> None:
    also = {fault.meanwhile.kind for fault in first(200) if fault.meanwhile}
    assert also == {"worker killed", "publisher killed", "operator killed"}


def test_some_faults_are_shorter_than_a_heartbeat_and_some_are_longer() -> None:
    frozen = [fault.seconds for fault in first(400) if fault.kind == "wire frozen"]
    assert min(frozen) < 5 < 10 < max(frozen)


def test_a_plan_of_one_kind_has_no_other() -> None:
    faults = islice(fault_plan(1, TARGETS, ("wire cut",)), 20)
    assert {fault.kind for fault in faults} == {"wire cut"}


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Fault("wire cut", 0), "wire cut (0)"),
        (
            Fault("node paused", 2, 1.5, meanwhile=Fault("worker killed", 1)),
            "node paused (2) for 1.5 s, and meanwhile worker killed (1)",
        ),
    ],
)
def test_a_fault_says_what_happens(fault: Fault, text: str) -> None:
    assert str(fault) == text
