"""What metrics and traces cost a subscriber: `python -m benchmarks.telemetry`.

Two runs of one program differ by a third on a machine that a broker shares with it, and what is to
be measured is a twentieth. So one subscriber in one process takes turns: its handler does nothing,
and after each thousand messages another of these is switched on: nothing, counters and histograms,
spans of one message in a hundred besides, spans of all. Each turn is compared with that of nothing
in the same round of turns, and the order within a round is another each time.
"""

import argparse
import itertools
import math
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

from benchmarks import page
from benchmarks.brokers import broker_of, default_brokers
from benchmarks.contenders import redrive
from benchmarks.measure import Clock, Load, Place
from benchmarks.places import declare, past_the_proxy
from benchmarks.plan import SIZE
from redrive import Subscriber, instrument, uninstrument
from redrive.pubsub import telemetry

MODES = (
    "nothing measured",
    "counters and histograms",
    "and spans of 1 %",
    "and spans of all",
)
NOTHING, COUNTED, SAMPLED, TRACED = MODES
AT_LEAST = {COUNTED: 0.95, SAMPLED: 0.9}
TURN, PREFETCH = 1000, 200
_WARM_UP = 3
"""Rounds that are not counted."""
_SIGMAS = 1.96
"""For a certainty of 95 %."""


class Turn(NamedTuple):
    """A thousand messages: seconds by the clock, and of the process's processor time."""

    seconds: float
    cpu_seconds: float


Rounds = list[dict[str, Turn]]


def main() -> int:
    """Measures, prints a table and writes it; the exit status is 1 where a promise is missed."""
    options = _options()
    rows: list[str] = []
    is_kept = True
    for name in options.brokers or default_brokers():
        with broker_of(name) as broker:
            url = past_the_proxy(broker.create_virtual_host("telemetry"))
            rounds = _measure(Place(url, "", PREFETCH), options.rounds)
            for mode in MODES:
                cost = _cost(rounds, mode)
                is_kept = is_kept and cost.ratio >= AT_LEAST.get(mode, 0)
                rows.append(_row(f"{broker.version} ({broker.kind})", mode, rounds, cost))
                print(rows[-1], flush=True)
    _write(options.output, options.rounds, rows)
    return 0 if is_kept else 1


def _modes() -> dict[str, "telemetry.Telemetry | None"]:
    """What is switched on in each turn."""
    found: dict[str, telemetry.Telemetry | None] = {NOTHING: None}
    for name, sampling in ((COUNTED, None), (SAMPLED, 0.01), (TRACED, 1.0)):
        meter = MeterProvider([InMemoryMetricReader()])
        if sampling is None:
            instrument(meter)
        else:
            instrument(meter, TracerProvider(), sampling=sampling)
        found[name] = telemetry.active
    uninstrument()
    return found


def _measure(place: Place, count: int) -> Rounds:
    """The turns of each round."""
    modes = _modes()
    rounds = [order for order, _ in zip(_orders(), range(count), strict=False)]
    turns = [mode for order in rounds for mode in order]
    taken: list[Turn] = []
    declare(place)
    redrive.publish(place, Load(TURN * len(turns), SIZE), Clock())
    subscriber = Subscriber(
        place.url,
        place.queue,
        [place.pattern],
        exchange=place.exchange,
        prefetch=place.prefetch,
        queue_type=place.queue_type,
    )
    is_done = threading.Event()
    handled = 0
    began = Turn(time.perf_counter(), time.process_time())

    @subscriber.handler
    def on_message(body: bytes) -> None:
        nonlocal handled, began
        handled += 1
        if handled % TURN:
            return
        ended = Turn(time.perf_counter(), time.process_time())
        taken.append(Turn(*(after - before for before, after in zip(began, ended, strict=True))))
        if len(taken) == len(turns):
            is_done.set()
        else:
            telemetry.active = modes[turns[len(taken)]]
        began = Turn(time.perf_counter(), time.process_time())

    telemetry.active = modes[turns[0]]
    subscriber.start()
    try:
        assert is_done.wait(900), f"{handled} of {TURN * len(turns)} messages were handled"
    finally:
        uninstrument()
        subscriber.stop()
        subscriber.wait()
    each = iter(taken)
    found = [{mode: next(each) for mode in order} for order in rounds]
    return found[_WARM_UP:]


def _orders() -> Iterator[tuple[str, ...]]:
    return itertools.cycle(itertools.permutations(MODES))


class Cost(NamedTuple):
    """What something costs.

    Args:
        ratio: of the rate to that with nothing measured: the median of the rounds.
        least: that the median is no less, and
        most: no more is 95 % sure.
        cpu_us: microseconds of processor time for a message more than with nothing measured.
    """

    ratio: float
    least: float
    most: float
    cpu_us: float


def _cost(rounds: Rounds, mode: str) -> Cost:
    ratios = sorted(turns[NOTHING].seconds / turns[mode].seconds for turns in rounds)
    # The interval of the sign test, which asks nothing of how they are distributed.
    off = round(_SIGMAS * math.sqrt(len(ratios)) / 2)
    middle = len(ratios) // 2
    more = [turns[mode].cpu_seconds - turns[NOTHING].cpu_seconds for turns in rounds]
    return Cost(
        statistics.median(ratios),
        ratios[max(0, middle - off)],
        ratios[min(len(ratios) - 1, middle + off)],
        statistics.median(more) / TURN * 1e6,
    )


def _row(broker: str, mode: str, rounds: Rounds, cost: Cost) -> str:
    seconds = statistics.median(turns[mode].seconds for turns in rounds)
    cpu = statistics.median(turns[mode].cpu_seconds for turns in rounds)
    promise = f"{AT_LEAST[mode]:g}" if mode in AT_LEAST else ""
    return (
        f"| {broker} | {mode} | {TURN / seconds:,.0f} | {cost.ratio:.2f} | "
        f"{cost.least:.2f}–{cost.most:.2f} | {promise} | {cpu / TURN * 1e6:.1f} | "
        f"{cost.cpu_us:+.1f} |"
    )


def _write(path: Path, rounds: int, rows: list[str]) -> None:
    words = (
        f"Written by `python -m benchmarks.telemetry --rounds {rounds}`.",
        (
            f"One subscriber with an empty handler and a prefetch of {PREFETCH} takes turns of "
            f"{TURN:,} messages, {rounds} of each."
        ),
        (
            "The ratio is to the turn with nothing measured in the same round: the median, and "
            "between what it is with a certainty of 95 %."
        ),
    )
    columns = (
        "| RabbitMQ | measured | messages/s | ratio | between | promised | CPU µs a message | "
        "more |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    )
    page.write(path, "What metrics and traces cost a subscriber", words, columns, rows)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.telemetry",
        description="Measures what metrics and traces cost a subscriber.",
    )
    parser.add_argument(
        "--rounds", type=int, default=480, help="how many turns of each; default %(default)s"
    )
    page.add_options(parser, "RESULTS-telemetry.md")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
