import threading

from redrive.pubsub import thread_counter
from redrive.pubsub.thread_counter import ThreadCounter


def test_what_threads_count_at_once_is_all_there_also_after_they_have_ended() -> None:
    counter = ThreadCounter()

    def count() -> None:
        for _ in range(2000):
            counter.add(1, {"queue": "shop@orders"})

    for _ in range(thread_counter._MOST_SHARDS // 4 + 2):
        threads = [threading.Thread(target=count) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    rounds = thread_counter._MOST_SHARDS // 4 + 2
    assert counter.totals() == {(("queue", "shop@orders"),): 2000 * 5 * rounds}
    assert len(counter._shards) <= thread_counter._MOST_SHARDS + 1
