"""A rehearsal foretells what a requeue brings, and moves nothing."""

from pathlib import Path

import pytest

from contract import rehearsed
from contract.plain import depth, plain_channel
from contract.support import Recorder, Service, retrying
from redrive.failures.message.cause import Cause, cause_of
from redrive.failures.queue.snapshot import Snapshot
from redrive.failures.rehearsal.rehearsal import Handler, Rehearsal, rehearse

TRIED = 2 * rehearsed.BUGS


def foretold_by(found: Rehearsal) -> dict[str | None, Cause | None]:
    """Why each message would fail, by its id."""
    return {one.message_id: one.after for one in found.tried}


@pytest.mark.versions("what a requeued message looks like")
def test_what_is_foretold_is_what_the_later_requeue_brings_id_by_id_and_nothing_moves_before(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = retrying(0)
    service.declare(retry=once)
    with plain_channel(service.url) as channel:
        channel.queue_declare("audit", durable=True)
        channel.queue_bind("audit", "master", "#")
        channel.queue_bind("audit", "master.failed", "#")
    with service.subscriber(rehearsed.broken, retry=once):
        ids = service.publish_numbered(TRIED)
        failed = service.wait_for_failed(TRIED)
    kept = Snapshot(tmp_path / "kept.jsonl")
    kept.write(failed)
    seen = depth(service.url, "audit")
    monkeypatch.chdir(Path(__file__).parents[1])
    name = "mended" if "blocking" in service.shell.name else "mended_async"
    handler = Handler(f"contract.rehearsed:{name}")

    found = rehearse(failed, handler, queue=service.queue, jobs=2)
    of_file = rehearse(list(kept.browse()), handler, queue=service.queue, jobs=2)

    assert [one.digest for one in service.failed()] == [one.digest for one in failed]
    assert (depth(service.url, service.queue), depth(service.url, "audit")) == (0, seen)
    foretold = foretold_by(found)
    assert foretold == foretold_by(of_file)
    good = [id_ for id_ in ids if foretold[id_] is None]
    assert len(good) == 3 * 2
    recorder = Recorder(rehearsed.mended)
    with service.subscriber(recorder, retry=once):
        service.failed_queue.requeue()
        recorder.wait_for_attempts(TRIED)
        brought = {one.message_id: cause_of(one) for one in service.wait_for_failed(TRIED - 6)}
    assert sorted(recorder.handled) == sorted(good)
    assert brought == {id_: cause for id_, cause in foretold.items() if cause is not None}
    assert {one.comparison for one in found.tried if one.after} == {"same cause"}
