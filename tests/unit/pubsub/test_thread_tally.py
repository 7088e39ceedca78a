"""What threads count and time at once, and its sum."""

import threading

from redrive.pubsub import thread_tally
from redrive.pubsub.thread_tally import Distribution, Sums, ThreadTally

SERIES = ("redrive.messages.handled", "shop@orders", "")


def test_what_threads_count_and_time_at_once_is_all_there_also_after_they_have_ended() -> None:
    tally = ThreadTally()

    def count() -> None:
        for _ in range(2000):
            tally.own.shard.count(SERIES).value += 1
            tally.own.shard.distribution(SERIES, (1, 2)).add(1)

    rounds = thread_tally._MOST_SHARDS // 4 + 2
    for _ in range(rounds):
        threads = [threading.Thread(target=count) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    total = tally.total()
    assert total.counts[SERIES].value == 2000 * 5 * rounds
    assert total.distributions[SERIES].sums.buckets == (2000 * 5 * rounds, 0, 0)
    assert len(tally._shards) <= thread_tally._MOST_SHARDS + 1


def test_a_value_is_in_the_bucket_whose_bound_it_is_equal_to() -> None:
    times = Distribution((1, 2, 5))
    for value in (0, 1, 1.5, 2, 5, 5.1):
        times.add(value)
    assert times.sums == Sums((2, 2, 1, 1), 14.6, 0, 5.1)
    assert times.sums.count == 6


def test_values_are_all_there_before_and_after_they_were_sorted_in() -> None:
    times = Distribution((1, 2, 5))
    for number in range(2 * thread_tally.AT_A_TIME + 1):
        times.add(number % 2)
        assert times.sums.count == number + 1
    times.note(9)
    before = times.sums
    times.sort_in()
    assert times.sums == before
    assert (before.least, before.most, before.buckets[-1]) == (0, 9, 1)


def test_a_sum_of_distributions_leaves_what_it_was_made_of() -> None:
    times, total = Distribution((1,)), Distribution((1,))
    times.add(0.5)
    total.merge(times)
    total.merge(times)
    total.add(3)
    assert total.sums == Sums((2, 1), 4, 0.5, 3)
    assert times.sums == Sums((1, 0), 0.5, 0.5, 0.5)
