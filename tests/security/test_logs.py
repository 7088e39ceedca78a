"""Attempts to bring secrets into a log, or lines that nobody logged."""

import io
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import redrive
from corpus import SECRET, SECRETS, STEERING, Secret, steering_in
from redrive import Publisher, RedriveError
from redrive.pubsub.confirms import Outbox
from redrive.pubsub.logs import JsonFormatter, TextFormatter
from redrive.pubsub.wire_protocol import logged_block

logger = logging.getLogger("redrive")


class Log:
    """What a handler with some formatter writes of the logger `redrive`."""

    def __init__(self, formatter: logging.Formatter) -> None:
        self.stream = io.StringIO()
        self.handler = logging.StreamHandler(self.stream)
        self.handler.setFormatter(formatter)

    @property
    def text(self) -> str:
        return self.stream.getvalue()


@pytest.fixture
def log(request: pytest.FixtureRequest) -> Iterator[Log]:
    """A log with the formatter of a parameter, else with Python's own: that of a program with
    logging of its own."""
    found = Log(getattr(request, "param", logging.Formatter)())
    logger.addHandler(found.handler)
    yield found
    logger.removeHandler(found.handler)


with_each_formatter = pytest.mark.parametrize(
    "log", [logging.Formatter, TextFormatter, JsonFormatter], indirect=True
)


def raises(text: str) -> Callable[[], tuple[str, str]]:
    def credentials() -> tuple[str, str]:
        raise RuntimeError(text)

    return credentials


@with_each_formatter
@pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: secret.shape)
def test_a_record_and_its_traceback_show_no_secret(log: Log, secret: Secret) -> None:
    logger.warning("no answer: %s", secret.text)
    try:
        raise ValueError(secret.text)
    except ValueError:
        logger.exception("it failed")
    assert "no answer" in log.text
    assert "ValueError" in log.text
    assert secret.secret not in log.text


@with_each_formatter
def test_credentials_that_can_not_be_had_are_not_logged(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger.name)  # at another level their traceback is left out
    publisher = Publisher(
        "amqp://127.0.0.1:1/",
        credentials=raises(f"vault said no: https://me:{SECRET}@vault/ token={SECRET}"),
    )
    with pytest.raises(RedriveError) as raised:
        publisher.publish({}, "user.create", timeout=60)
    publisher.close()
    assert SECRET not in str(raised.value)
    assert "RuntimeError" in log.text
    assert SECRET not in log.text
    assert "RuntimeError" in str(raised.value)


@with_each_formatter
@pytest.mark.parametrize("payload", STEERING.values(), ids=STEERING)
def test_a_record_adds_no_other_and_steers_nothing(log: Log, payload: str) -> None:
    logger.warning("the broker said %s", payload)
    first, *others = log.text.splitlines()
    assert "the broker said" in first
    assert all(line.startswith("    ") for line in others)
    assert steering_in(log.text) == set()


@pytest.mark.parametrize("payload", STEERING.values(), ids=STEERING)
def test_a_text_log_of_a_program_adds_no_record_either(payload: str) -> None:
    log = Log(TextFormatter())
    try:
        raise ValueError(payload)
    except ValueError:
        log.handler.handle(
            logging.getLogger("shop").makeRecord("shop", logging.ERROR, "", 1, payload, (), None)
        )
        log.handler.handle(
            logging.getLogger("shop").makeRecord(
                "shop", logging.ERROR, "", 1, "failed", (), _exc_info()
            )
        )
    begin = [line for line in log.text.splitlines() if not line.startswith("    ")]
    assert [line.split()[2:4] for line in begin] == [["ERROR", "shop:"]] * 2
    assert steering_in(log.text) == set()


@pytest.mark.parametrize("log", [logging.Formatter, TextFormatter, JsonFormatter], indirect=True)
def test_why_a_broker_takes_no_messages_is_one_line(log: Log) -> None:
    outbox = Outbox.__new__(Outbox)
    blocked, _ = logged_block(outbox._on_blocked, lambda: None)
    blocked(f"memory\n2026-01-01 00:00:00 INFO    redrive: all is well{STEERING['C1 CSI']}")
    assert log.text.count("\n") == 1
    assert "\n" not in (outbox.blocked or "")
    assert steering_in(log.text) == set()


def test_what_is_clean_is_logged_as_it_was_for_those_who_group_by_the_template(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger.warning("queue %s: %d messages", "shop@q", 3)
    (record,) = caplog.records
    assert (record.msg, record.args) == ("queue %s: %d messages", ("shop@q", 3))


def test_a_line_of_json_has_the_traceback_of_which_a_secret_was_taken_out() -> None:
    log = Log(JsonFormatter())
    logger.addHandler(log.handler)
    try:
        raise ValueError(f"password={SECRET}")
    except ValueError:
        logger.exception("it failed")
    finally:
        logger.removeHandler(log.handler)
    line = json.loads(log.text)
    assert line["message"] == "it failed"
    assert line["exception"].endswith("ValueError: password=***")


def test_all_of_redrive_logs_to_the_one_logger_that_is_cleaned() -> None:
    found = {
        line.partition("getLogger(")[2].partition(")")[0]
        for module in Path(redrive.__file__).parent.rglob("*.py")
        for line in module.read_text(encoding="utf-8").splitlines()
        if "getLogger(" in line
    }
    assert found <= {'"redrive"', '"pika"', '"py4j"', '"aiormq"', '"aio_pika"', "name", "_name"}
    assert '"redrive"' in found


def _exc_info() -> tuple[type[BaseException], BaseException, None]:
    try:
        raise ValueError("one\n2026-01-01 00:00:00 INFO    redrive: all is well")
    except ValueError as error:
        return type(error), error, None
