"""`redrive failed fixtures` writes tests that fail on the old handler and pass on the mended."""

import sys
from pathlib import Path
from subprocess import run

import pytest

from cli_support import depth_of, give_up_on, redrive

QUEUE = "ucenter@user"
APP = """
from redrive import {kind}, RetryPolicy

app = {kind}("amqp://nobody.invalid/")

@app.subscriber("ucenter@user", "user.*", retry=RetryPolicy(max_retries=2, delay="10m"))
{handle}(user: dict) -> None:
    user[{key!r}]
"""


def outcome_of_tests(key: str, kind: str) -> str:
    """What pytest says of the written tests, for a handler that asks for this key."""
    handle = {"App": "def handle", "AsyncApp": "async def handle"}[kind]
    Path("shop.py").write_text(APP.format(kind=kind, handle=handle, key=key))
    words = (sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    done = run(words, capture_output=True, text=True, env={"PYTHONPATH": "."}, check=False)
    return done.stdout


@pytest.mark.parametrize("kind", ["App", "AsyncApp"])
def test_what_is_written_fails_on_the_old_handler_and_passes_on_the_mended_one(
    rabbitmq_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    bodies = [{"id": 1, "password": "s3cret"}, {"id": 2, "password": "tiger"}, {"id": [3]}]
    give_up_on(rabbitmq_url, QUEUE, bodies)
    words = ("failed", "fixtures", QUEUE, "--handler", "shop:app", "-o", "tests")

    done = redrive(*words, "--mask", "$..password", url=rabbitmq_url)

    assert (done.code, depth_of(rabbitmq_url, QUEUE)["failed"]) == (0, 3)
    (cases,) = Path("tests").glob("failed_*.json")
    assert cases.read_text().count('"body"') == 2
    assert not {"s3cret", "tiger"} & set(cases.read_text().split('\\"'))
    assert "2 failed" in outcome_of_tests("plan", kind)
    assert "2 passed" in outcome_of_tests("id", kind)
    again = redrive(*words, url=rabbitmq_url)
    assert (again.code, "is there already" in again.err) == (2, True)
