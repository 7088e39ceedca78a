"""On written-out journals, each thing that must not be is found, and nothing else."""

from collections import Counter
from collections.abc import Iterable, Mapping

import pytest

from torture.checker import Disturbance, Ledger, Remains, Report, check
from torture.event_journal import Event
from torture.lanes import LANES

_MS = 1_000_000
FAULT = Disturbance("node killed", 0, 200_000 * _MS)
CLEAN = """
0 sending deadletter@blocking/1 1
10 confirmed deadletter@blocking/1
20 begun deadletter@blocking/1 0
30 failed deadletter@blocking/1 0
1040 begun deadletter@blocking/1 1
1050 handled deadletter@blocking/1 1
"""
SET_ASIDE = """
0 sending deadletter@blocking/4 -1
10 confirmed deadletter@blocking/4
20 begun deadletter@blocking/4 0
30 failed deadletter@blocking/4 0
1040 begun deadletter@blocking/4 1
1050 failed deadletter@blocking/4 1
2060 begun deadletter@blocking/4 2
2070 failed deadletter@blocking/4 2
3080 begun deadletter@blocking/4 3
3090 failed deadletter@blocking/4 3
"""
REQUEUED = """
0 sending requeue@async/1 -2
10 confirmed requeue@async/1
20 begun requeue@async/1 0
30 failed requeue@async/1 0
1040 begun requeue@async/1 1
1050 failed requeue@async/1 1
2060 begun requeue@async/1 2
2070 failed requeue@async/1 2
3080 begun requeue@async/1 3
3090 failed requeue@async/1 3
4000 requeueing requeue@async/1
4010 begun requeue@async/1 0 1
4020 handled requeue@async/1 0 1
"""
IN_ORDER = """
0 sending ordered@blocking/1 1
10 confirmed ordered@blocking/1
20 sending ordered@blocking/2 0
30 confirmed ordered@blocking/2
40 begun ordered@blocking/1 0
50 failed ordered@blocking/1 0
300 begun ordered@blocking/1 1
310 handled ordered@blocking/1 1
320 begun ordered@blocking/2 0
330 handled ordered@blocking/2 0
"""
SCHEDULED = """
0 sending scheduled@async/1 0 2000
10 confirmed scheduled@async/1
2100 begun scheduled@async/1 0
2110 handled scheduled@async/1 0
"""
PARKED = """
0 sending orphans/1 -3 2000
10 confirmed orphans/1
"""
ALL = CLEAN + SET_ASIDE + REQUEUED + IN_ORDER + SCHEDULED + PARKED
ALL_REMAINS = {"deadletter@blocking/4": 1}


def events_of(text: str) -> Iterable[Event]:
    """The events of a journal whose times are written in milliseconds."""
    for line in text.split("\n"):
        if line:
            at, *words = line.split()
            numbers = [*words[2:], "0", "0"][:2]
            yield Event.of_line(" ".join([str(int(at) * _MS), *words[:2], *numbers]))


def report_on(
    text: str,
    failed: Mapping[str, int] | None = None,
    *disturbances: Disturbance,
    unrouted: Mapping[str, int] | None = None,
    depths: Mapping[str, Mapping[str, int]] | None = None,
) -> Report:
    ledger = Ledger(LANES)
    ledger.add(events_of(text))
    return check(
        ledger,
        Remains(Counter(failed or {}), Counter(unrouted or {}), depths or {}),
        disturbances,
    )


def without(text: str, line: str) -> str:
    assert f"\n{line}\n" in text
    return text.replace(f"\n{line}\n", "\n")


def kinds(report: Report) -> list[str]:
    return [finding.kind for finding in report.findings]


def kinds_of_time(report: Report) -> list[str]:
    return [kind for kind in kinds(report) if kind in ("early", "late")]


def test_a_clean_run_has_no_finding() -> None:
    report = report_on(ALL, ALL_REMAINS, unrouted={"orphans/1": 1}, depths={"a": {"messages": 0}})
    assert report.findings == ()
    assert (report.published, report.unconfirmed) == (7, 0)
    assert (report.handled, report.set_aside, report.parked) == (5, 1, 1)
    assert report.duplicates == 0


def test_what_is_done_with_is_finished() -> None:
    ledger = Ledger(LANES)
    ledger.add(events_of(ALL))
    assert ledger.unfinished == frozenset()


@pytest.mark.parametrize(
    "text",
    [
        without(CLEAN, "1050 handled deadletter@blocking/1 1"),
        without(SET_ASIDE, "3090 failed deadletter@blocking/4 3"),
        without(REQUEUED, "4020 handled requeue@async/1 0 1"),
    ],
)
def test_what_is_not_done_with_is_unfinished(text: str) -> None:
    ledger = Ledger(LANES)
    ledger.add(events_of(text))
    assert len(ledger.unfinished) == 1


def test_what_waits_for_an_operator_is_counted() -> None:
    ledger = Ledger(LANES)
    ledger.add(events_of(REQUEUED.partition("4000")[0]))
    assert ledger.waiting_for_requeue == 1


# --- lost -----------------------------------------------------------------------------------------


def test_confirmed_and_never_handled_is_lost() -> None:
    text = without(CLEAN, "1050 handled deadletter@blocking/1 1")
    assert kinds(report_on(text)) == ["lost"]


def test_a_fault_excuses_no_loss() -> None:
    text = without(CLEAN, "1050 handled deadletter@blocking/1 1")
    assert kinds(report_on(text, {}, FAULT)) == ["lost"]


def test_failed_for_good_and_in_no_failed_queue_is_lost() -> None:
    assert kinds(report_on(SET_ASIDE)) == ["lost"]


ON_ITS_WAY = """
0 sending {lane}@blocking/1 1
10 confirmed {lane}@blocking/1
20 begun {lane}@blocking/1 0
30 failed {lane}@blocking/1 0
"""
KILL = Disturbance("node killed (0)", 500 * _MS, 9_000 * _MS)


@pytest.mark.parametrize("what", ["node killed (0)", "node restarted (0)"])
def test_what_a_classic_queue_that_ends_loses_on_the_way_of_a_retry_is_counted_apart(
    what: str,
) -> None:
    end = Disturbance(what, 500 * _MS, 9_000 * _MS)
    report = report_on(ON_ITS_WAY.format(lane="republish"), {}, end)
    assert report.lost_by_classic_queues == ("republish@blocking/1",)
    assert report.findings == ()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (ON_ITS_WAY.format(lane="deadletter"), KILL),
        (ON_ITS_WAY.format(lane="republish").partition("20 begun")[0], KILL),
        (ON_ITS_WAY.format(lane="republish"), Disturbance("wire cut (0)", 0, 9_000 * _MS)),
        (
            ON_ITS_WAY.format(lane="republish"),
            Disturbance("node killed (0)", 30_000 * _MS, 31_000 * _MS),
        ),
    ],
    ids=["quorum", "never tried", "another fault", "another time"],
)
def test_nothing_else_is_a_classic_queue_s_loss(text: str, fault: Disturbance) -> None:
    report = report_on(text, {}, fault)
    assert kinds(report) == ["lost"]
    assert report.lost_by_classic_queues == ()


def test_what_nobody_confirmed_is_not_lost() -> None:
    report = report_on("\n0 sending deadletter@blocking/1 0\n")
    assert report.findings == ()
    assert report.unconfirmed == 1


def test_what_was_never_requeued_is_left_over() -> None:
    text = REQUEUED.partition("4000")[0]
    assert kinds(report_on(text, {"requeue@async/1": 1})) == ["left over"]


def test_what_nobody_wanted_and_is_not_parked_is_lost() -> None:
    assert kinds(report_on(PARKED)) == ["lost"]


# --- twice ----------------------------------------------------------------------------------------

AGAIN = "1060 begun deadletter@blocking/1 1\n1070 handled deadletter@blocking/1 1\n"


def test_handled_twice_without_a_fault_is_found() -> None:
    assert kinds(report_on(CLEAN + AGAIN)) == ["twice"]


def test_handled_twice_at_a_fault_is_counted() -> None:
    report = report_on(CLEAN + AGAIN, {}, FAULT)
    assert report.findings == ()
    assert report.duplicates == 1


def test_a_fault_at_another_time_explains_nothing() -> None:
    later = Disturbance("wire cut", 5_000 * _MS, 6_000 * _MS)
    assert kinds(report_on(CLEAN + AGAIN, {}, later)) == ["twice"]


def test_begun_again_without_a_fault_is_found() -> None:
    text = CLEAN + "1045 begun deadletter@blocking/1 1\n"
    assert kinds(report_on(text)) == ["twice"]
    assert kinds(report_on(text, {}, FAULT)) == []


def test_set_aside_twice_is_a_duplicate() -> None:
    report = report_on(SET_ASIDE, {"deadletter@blocking/4": 2})
    assert kinds(report) == ["twice"]
    assert report.duplicates == 1


def test_more_duplicates_than_were_in_flight_are_found() -> None:
    lane = LANES[0]
    text = CLEAN + AGAIN * (lane.in_flight + 1)
    report = report_on(text, {}, FAULT)
    assert kinds(report) == ["twice"]
    assert report.findings[0].id == lane.name


# --- the budget -----------------------------------------------------------------------------------


def test_an_attempt_over_the_budget_is_found() -> None:
    text = SET_ASIDE + "4100 begun deadletter@blocking/4 4\n4110 failed deadletter@blocking/4 4\n"
    assert kinds(report_on(text, ALL_REMAINS, FAULT)) == ["over budget"]


@pytest.mark.parametrize(("way", "delay"), [("ordered", 300), ("broker", 1100)])
@pytest.mark.parametrize(("attempts", "found"), [(6, []), (7, ["over budget"])])
def test_a_message_may_have_an_attempt_more_for_each_worker_at_a_fault_where_returns_count(
    attempts: int, found: list[str], way: str, delay: int
) -> None:
    tried = "".join(
        f"{number * delay} begun {way}@async/1 {number}\n"
        f"{number * delay + 5} failed {way}@async/1 {number}\n"
        for number in range(attempts)
    )
    text = f"\n0 sending {way}@async/1 -1\n1 confirmed {way}@async/1\n{tried}"
    failed = {f"{way}@async/1": 1}
    assert kinds(report_on(text, failed)) == ["over budget"]
    kill = Disturbance("node killed (0)", 100 * _MS, 200 * _MS)
    assert kinds(report_on(text, failed, kill)) == found


def test_what_the_filter_leaves_is_not_requeued() -> None:
    text = SET_ASIDE + "4100 begun deadletter@blocking/4 0 1\n"
    assert kinds(report_on(text, ALL_REMAINS)) == ["over budget"]


def test_set_aside_too_soon_is_found() -> None:
    text = SET_ASIDE.partition("3080")[0]
    assert kinds(report_on(text, ALL_REMAINS)) == ["under budget"]


def test_set_aside_although_it_would_succeed_is_found() -> None:
    text = without(CLEAN, "1050 handled deadletter@blocking/1 1")
    assert kinds(report_on(text, {"deadletter@blocking/1": 1})) == ["under budget"]


def test_a_retry_that_no_failure_explains_is_found() -> None:
    text = without(CLEAN, "30 failed deadletter@blocking/1 0")
    assert kinds(report_on(text)) == ["under budget"]


# --- time -----------------------------------------------------------------------------------------


def test_a_retry_before_its_delay_has_passed_is_early() -> None:
    text = CLEAN.replace("1040 begun", "940 begun")
    assert kinds(report_on(text, {}, FAULT)) == ["early"]


def test_a_scheduled_message_before_its_time_is_early() -> None:
    text = SCHEDULED.replace("2100 begun", "1900 begun")
    assert kinds(report_on(text)) == ["early"]


def test_a_scheduled_message_that_was_sent_again_counts_from_the_first_time() -> None:
    text = SCHEDULED + "1000 sending scheduled@async/1 0 2000\n"
    assert kinds(report_on(text)) == []


COPIES = """
0 sending ordered@async/1 -1
900 confirmed ordered@async/1
1000 begun ordered@async/1 2
1010 failed ordered@async/1 2
1400 begun ordered@async/1 0
1410 failed ordered@async/1 0
1700 begun ordered@async/1 1
1710 failed ordered@async/1 1
2000 begun ordered@async/1 2
2010 failed ordered@async/1 2
"""
"""Two of one message: the first was returned twice while the wire was cut."""


def tried(times: int, *, since: int) -> str:
    """So many failed attempts on a message of an ordered queue, one after the other."""
    return "".join(
        f"{since + number * 300} begun ordered@async/1 {number % 4}\n"
        f"{since + number * 300 + 5} failed ordered@async/1 {number % 4}\n"
        for number in range(times)
    )


@pytest.mark.parametrize(("confirmed", "found"), [(900, []), (5, ["over budget"])])
def test_a_publisher_that_lost_its_connection_before_the_confirm_may_have_sent_two(
    confirmed: int, found: list[str]
) -> None:
    sent = f"\n0 sending ordered@async/1 -1\n{confirmed} confirmed ordered@async/1\n"
    cut = Disturbance("wire cut", 10 * _MS, 850 * _MS)
    report = report_on(sent + tried(8, since=1000), {"ordered@async/1": 2}, cut)
    assert [kind for kind in kinds(report) if kind == "over budget"] == found


HELD_BACK = """
0 sending broker@async/1 1
10 confirmed broker@async/1
20 begun broker@async/1 0
30 failed broker@async/1 0
1040 begun broker@async/1 1
1050 handled broker@async/1 1
"""


def test_a_message_that_is_held_back_comes_when_its_delay_is_over() -> None:
    assert kinds(report_on(HELD_BACK)) == []
    assert kinds(report_on(HELD_BACK.replace("1040 begun", "940 begun"))) == ["early"]


def test_of_two_copies_that_are_held_back_one_may_have_been_returned_by_a_fault() -> None:
    text = HELD_BACK.replace("1040 begun", "800 begun") + "1200 begun broker@async/1 1\n"
    pause = Disturbance("node paused (0)", 5 * _MS, 25 * _MS)
    assert kinds_of_time(report_on(text, {}, pause)) == []
    assert kinds_of_time(report_on(text, {})) == ["early"]


def test_a_return_is_a_retry_of_a_message_that_is_held_back_only_where_its_worker_died() -> None:
    text = without(HELD_BACK, "30 failed broker@async/1 0")
    assert kinds(report_on(text)) == ["under budget"]
    death = Disturbance("worker killed", 25 * _MS, 30 * _MS)
    assert kinds(report_on(text, {}, death)) == []


def test_a_restart_may_return_an_ordered_message_more_than_once() -> None:
    sent = "\n0 sending ordered@async/1 -1\n1 confirmed ordered@async/1\n"
    text = f"{sent}10 begun ordered@async/1 0\n15 failed ordered@async/1 0\n"
    text += "9000 begun ordered@async/1 3\n9005 failed ordered@async/1 3\n"
    restart = Disturbance("node restarted (0)", 100 * _MS, 8_000 * _MS)
    assert kinds(report_on(text, {"ordered@async/1": 1}, restart)) == []
    assert "under budget" in kinds(report_on(text, {"ordered@async/1": 1}))


def test_of_two_copies_in_an_ordered_queue_one_may_be_ahead() -> None:
    cut = Disturbance("wire cut", 10 * _MS, 850 * _MS)
    assert kinds_of_time(report_on(COPIES, {"ordered@async/1": 2}, cut)) == []


def test_without_a_fault_no_attempt_of_an_ordered_message_is_begun_ahead_of_time() -> None:
    assert kinds_of_time(report_on(COPIES, {"ordered@async/1": 2})) == ["early"]


def test_an_ordered_retry_may_be_early_where_its_worker_died() -> None:
    text = IN_ORDER.replace("300 begun", "100 begun")
    assert kinds(report_on(text)) == ["early"]
    death = Disturbance("worker killed", 60 * _MS, 90 * _MS)
    assert kinds(report_on(text, {}, death)) == []


@pytest.mark.parametrize(
    "text",
    [
        CLEAN.replace("1040 begun", "40000 begun").replace("1050 handled", "40010 handled"),
        SCHEDULED.replace("2100 begun", "40000 begun").replace("2110 handled", "40010 handled"),
    ],
)
def test_far_after_its_time_without_a_fault_is_late(text: str) -> None:
    assert kinds(report_on(text)) == ["late"]
    fault = Disturbance("node paused", 20_000 * _MS, 25_000 * _MS)
    assert kinds(report_on(text, {}, fault)) == []


def test_a_message_of_the_ladder_may_ask_for_a_delay_of_its_own() -> None:
    text = """
0 sending ladder@async/1 1 30000
10 confirmed ladder@async/1
20 begun ladder@async/1 0
30 failed ladder@async/1 0
{} begun ladder@async/1 1
99000 handled ladder@async/1 1
"""
    assert kinds(report_on(text.format(30_100))) == []
    assert kinds(report_on(text.format(2_000))) == ["early"]
    assert kinds(report_on(text.format(60_000))) == ["late"]


# --- order ----------------------------------------------------------------------------------------


def test_overtaking_is_found() -> None:
    text = IN_ORDER.replace("320 begun", "100 begun").replace("330 handled", "110 handled")
    assert kinds(report_on(text)) == ["out of order"]


def test_going_on_while_a_message_is_not_done_with_is_found() -> None:
    text = without(IN_ORDER, "310 handled ordered@blocking/1 1")
    assert sorted(kinds(report_on(text))) == ["lost", "out of order"]


def test_a_copy_that_comes_later_is_in_order() -> None:
    text = IN_ORDER + "400 begun ordered@blocking/1 0\n410 handled ordered@blocking/1 0\n"
    assert kinds(report_on(text, {}, FAULT)) == []


# --- what is left ---------------------------------------------------------------------------------


def test_what_stays_in_a_queue_is_left_over() -> None:
    report = report_on(CLEAN, depths={"deadletter@blocking@retry": {"messages_dlx": 3, "ready": 0}})
    assert kinds(report) == ["left over"]
    assert "messages_dlx" in report.findings[0].text


def test_what_nobody_published_is_left_over() -> None:
    assert kinds(report_on(CLEAN, {"deadletter@blocking/99": 1})) == ["left over"]


def test_what_somebody_wanted_is_not_to_be_parked() -> None:
    assert kinds(report_on(CLEAN, unrouted={"deadletter@blocking/1": 1})) == ["left over"]


def test_a_finding_says_what_it_found() -> None:
    text = without(CLEAN, "1050 handled deadletter@blocking/1 1")
    (finding,) = report_on(text).findings
    assert str(finding).startswith("lost: deadletter@blocking/1: confirmed, begun 2 times")
    assert report_on(text).count("lost") == 1


WAITS = """
0 sending ladder@blocking/1 1
10 confirmed ladder@blocking/1
200000 begun ladder@blocking/1 0
200030 failed ladder@blocking/1 0
{came} begun ladder@blocking/1 1
{done} handled ladder@blocking/1 1
"""


@pytest.mark.parametrize(
    ("what", "late_by", "found", "held_up"),
    [
        ("node killed (0)", 150_000, [], 1),
        ("node killed (0)", 300_000, ["late"], 0),
        ("worker killed (0)", 150_000, ["late"], 0),
    ],
    ids=["after a node's end", "too late", "another fault"],
)
def test_what_waits_until_the_broker_dead_letters_again_is_counted_apart(
    what: str, late_by: int, found: list[str], held_up: int
) -> None:
    came = 200_030 + 1_000 + late_by
    fault = Disturbance(what, 170_000 * _MS, 180_000 * _MS)
    report = report_on(WAITS.format(came=came, done=came + 10), {}, fault)
    assert (kinds(report), report.held_up) == (found, held_up)
