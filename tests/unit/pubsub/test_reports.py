"""What a requeue counts of messages that stay."""

import pytest

from redrive.pubsub.reports import RequeueReport


@pytest.mark.parametrize(
    ("verdict", "counts"),
    [("unknown", (1, 0, 0)), ("contradicted", (0, 1, 0)), ("unchecked", (0, 0, 1))],
)
def test_what_stays_is_counted_for_the_verdict_on_its_way(
    verdict: str, counts: tuple[int, int, int]
) -> None:
    report = RequeueReport("job")
    report.stays(verdict)
    assert (report.no_way_back, report.contradicted, report.unchecked) == counts
    assert report.skipped == 1
