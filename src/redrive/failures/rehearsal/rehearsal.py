"""A rehearsal: a handler runs over copies of failed messages, and nothing is sent or settled."""

import base64
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal, NamedTuple
from urllib.parse import urlencode
from xml.sax.saxutils import escape, quoteattr

from redrive.errors import ConfigurationError, HandlerTimeout
from redrive.failures.message.cause import Cause, cause_from, cause_of
from redrive.failures.message.dialects.known import renewed
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.rehearsal.rehearsal_child import FRAME_MAX
from redrive.pubsub.handler_error import report_of
from redrive.redaction import in_one_line, redact
from redrive.topology import rewrite
from redrive.topology.decision import crash_report
from redrive.topology.headers import Delivery

SERVICE_VERSION = "REDRIVE_SERVICE_VERSION"
"""Environment variable with the version of the service, for the report."""

_CHILD = "redrive.failures.rehearsal.rehearsal_child"
_JOB = "rehearsal"
_MOST_OUTPUT = 64 * 1024
"""Bytes that are kept of what one message's handler prints."""
_MOST_TOLD = 20
_ALIKE = 10
"""How many messages that fail alike at the set-up, before any other, end a rehearsal."""
_STEP = 0.2
_LONGEST_ADDRESS = 12_000
"""Characters of an address that the console's server takes."""
_LONGEST_ANSWER = 64 * 1024 * 1024
_LARGEST_NUMBER = 10**12
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Comparison = Literal["succeeds", "same cause", "new cause"]


class HandlerRefused(ConfigurationError):
    """A handler can't be loaded, or is not for these messages.

    Args:
        problem: what is wrong.
        remedy: what to do about it.
        traceback: where the program failed; empty if redrive found the problem.
    """

    def __init__(self, problem: str, remedy: str, traceback: str) -> None:
        super().__init__(problem, remedy)
        self.traceback = traceback


@dataclass(frozen=True, slots=True)
class Handler:
    """What is rehearsed: a handler in Python, or a command.

    Args:
        name: an app, a router, a subscriber or a function, as `module:name`; empty for a command.
        command: the words of a command that answers each message.
        within: a function that returns a context manager for a message, as `module:name`; empty for
            none.
        timeout: seconds that a handler without a timeout of its own may run.
    """

    name: str = ""
    command: tuple[str, ...] = ()
    within: str = ""
    timeout: float = 60.0

    def __post_init__(self) -> None:
        if bool(self.name) == bool(self.command):
            raise ConfigurationError(
                "two handlers are given" if self.name else "no handler is given",
                "Name one, as --handler module:name or with --command.",
            )
        if self.name and not hasattr(os, "fork"):
            raise ConfigurationError(
                "a handler runs in a fork of a process, which this system does not have",
                "Run it on Linux or macOS.",
            )

    @property
    def words(self) -> tuple[str, ...]:
        """The words that start its process."""
        if self.command:
            return self.command
        return sys.executable, "-P", "-m", _CHILD, self.name, self.within, str(self.timeout)

    @property
    def answer_within(self) -> float:
        """Seconds in which the process has to answer; a process in Python knows the handler's own
        timeout."""
        return self.timeout if self.command else float("inf")


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of one message.

    Args:
        failure_id: the id of its failure.
        message_id: the publisher's id for it.
        before: why it failed, as recorded.
        after: why it fails now; None if it would succeed.
        error: the text of the error that it fails with now.
        traceback: its traceback.
        stage: `set-up`, `handler` or `clean-up`: where it failed.
        declined: whether the subscriber's `where` declines it.
        seconds: how long its handler ran; None if its command did not say.
        published: how many messages it would publish, by routing key.
        output: what its handler printed.
    """

    failure_id: str
    message_id: str | None
    before: Cause
    after: Cause | None
    error: str = ""
    traceback: str = ""
    stage: str = "handler"
    declined: bool = False
    seconds: float | None = None
    published: Mapping[str, int] = field(default_factory=dict)
    output: str = ""

    @property
    def comparison(self) -> Comparison:
        """How it compares to what is recorded. A service without redrive records no frame."""
        if self.after is None:
            return "succeeds"
        before, after = self.before, self.after
        same = before[:2] == after[:2] and (
            before.frame == after.frame or not (before.frame and after.frame)
        )
        return "same cause" if same else "new cause"

    def as_json(self) -> dict[str, object]:
        """Return it as JSON values."""
        return {
            "failure_id": self.failure_id,
            "message_id": self.message_id,
            "result": self.comparison,
            "before": _json_of(self.before),
            "after": None if self.after is None else _json_of(self.after),
            "error": self.error or None,
            "traceback": self.traceback or None,
            "stage": self.stage,
            "declined": self.declined,
            "seconds": self.seconds,
            "published": dict(self.published),
            "output": self.output,
        }


class CauseRow(NamedTuple):
    """What came of the messages of one recorded cause."""

    cause: Cause
    succeed: int
    same: int
    new: int


@dataclass(slots=True)
class Rehearsal:
    """What a rehearsal has found.

    Args:
        queue: the queue whose messages were tried.
        handler: what handled them.
        total: how many there are to try.
        version: the version of the service that was tried; empty if unknown.
        began: when it began.
        tried: what came of each message.
        stopped: why it ended before all messages were tried; empty if all were.
    """

    queue: str
    handler: str
    total: int
    version: str = ""
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    tried: list[Tried] = field(default_factory=list)
    stopped: str = ""

    @property
    def is_good(self) -> bool:
        """Whether all messages were tried and would succeed."""
        return not self.stopped and all(one.after is None for one in self.tried)

    @property
    def published(self) -> Counter[str]:
        """How many messages would be published, by routing key."""
        found: Counter[str] = Counter()
        for one in self.tried:
            found.update(one.published)
        return found

    @property
    def causes(self) -> list[CauseRow]:
        """What came of the messages of each recorded cause, the largest first."""
        found: dict[Cause, Counter[Comparison]] = {}
        for one in self.tried:
            found.setdefault(one.before, Counter())[one.comparison] += 1
        rows = [
            CauseRow(cause, count["succeeds"], count["same cause"], count["new cause"])
            for cause, count in found.items()
        ]
        return sorted(rows, key=lambda row: -sum(row[1:]))

    @property
    def new_causes(self) -> list[tuple[Cause, int]]:
        """The causes that messages fail with now and were not recorded for them, the most frequent
        first."""
        return Counter(
            one.after
            for one in self.tried
            if one.after is not None and one.comparison == "new cause"
        ).most_common()

    def sentences(self) -> Iterator[str]:
        """Yield what was found, for people."""
        results = Counter(one.comparison for one in self.tried)
        done = len(self.tried)
        failing = done - results["succeeds"]
        of_all = f" ({done:,} of {self.total:,} were tried)" if done < self.total else ""
        line = f"{results['succeeds']:,} of {done:,} would succeed{of_all}"
        if failing:
            same = Counter(one.before for one in self.tried if one.comparison == "same cause")
            parts = [
                f"{count:,} still `{in_one_line(cause.what)}` (the same cause)"
                for cause, count in same.most_common(_MOST_TOLD)
            ]
            more = sum(same.values()) - sum(n for _, n in same.most_common(_MOST_TOLD))
            if more:
                parts.append(f"{more:,} with further causes that are the same")
            if results["new cause"]:
                parts.append(f"{results['new cause']:,} with a new one")
            line += f"; {failing:,} fail: {', '.join(parts)}"
        yield f"{line}."
        for cause, count in self.new_causes[:_MOST_TOLD]:
            yield f"{count:,} × new: {in_one_line(cause.in_words)}"
        declined = sum(one.declined for one in self.tried)
        if declined:
            yield f"{declined:,} of them would be declined by the subscriber's `where`, and acked."
        for key, count in self.published.most_common(_MOST_TOLD):
            yield f"It would publish {count:,} × {in_one_line(key)}."
        if self.stopped:
            yield f"{self.stopped}."

    @property
    def in_words(self) -> str:
        """Return the result on one line, for a job's reason."""
        return _in_words(len(self.good), len(self.tried), self.version, self.began)

    @property
    def good(self) -> list[str]:
        """The ids of the failures that would succeed."""
        return [one.failure_id for one in self.tried if one.after is None]

    def plan_link(self, console: str, *, literal: bool) -> str:
        """Return the address of the console's plan for the messages that would succeed; empty if
        there are too many for an address, or none."""
        asks = {
            "queue": self.queue,
            **({"literal": "1"} if literal else {}),
            "where": _where(self.good),
            "reason": self.in_words,
            "rehearsed": self.in_words,
        }
        address = f"{console.rstrip('/')}/plan?{urlencode(asks, errors='surrogateescape')}"
        return address if self.good and len(address) < _LONGEST_ADDRESS else ""

    def as_json(self) -> dict[str, object]:
        """Return it as JSON values."""
        results = Counter(one.comparison for one in self.tried)
        return {
            "queue": self.queue,
            "handler": self.handler,
            "version": self.version or None,
            "began": self.began.isoformat(),
            "messages": self.total,
            "tried": len(self.tried),
            "succeed": results["succeeds"],
            "same_cause": results["same cause"],
            "new_cause": results["new cause"],
            "published": dict(self.published.most_common()),
            "stopped": self.stopped or None,
            "causes": [
                {**_json_of(row.cause), "succeed": row.succeed, "same": row.same, "new": row.new}
                for row in self.causes
            ],
            "results": [one.as_json() for one in self.tried],
        }

    def junit(self) -> str:
        """Return it as the XML that pipelines read."""
        failures = [one for one in self.tried if one.after is not None]
        suite = (
            f"<testsuite name={_attribute(f'redrive failed try {self.queue}')} "
            f'tests="{len(self.tried)}" failures="{len(failures)}" errors="0" '
            f'timestamp="{self.began:%Y-%m-%dT%H:%M:%S}" '
            f'time="{sum(one.seconds or 0 for one in self.tried):.3f}">'
        )
        lines = ['<?xml version="1.0" encoding="UTF-8"?>', suite]
        for one in self.tried:
            lines.append(
                f"<testcase classname={_attribute(self.queue)} "
                f"name={_attribute(one.failure_id)}{_time(one.seconds)}>"
            )
            if one.after is not None:
                said = f"{one.comparison}: {one.after.what}"
                lines.append(
                    f"<failure type={_attribute(one.after.error_type)} "
                    f"message={_attribute(said)}>{_text(one.traceback or one.error)}</failure>"
                )
            if one.output:
                lines.append(f"<system-out>{_text(one.output)}</system-out>")
            lines.append("</testcase>")
        if self.stopped:
            lines.append(f"<system-err>{_text(self.stopped)}</system-err>")
        return "\n".join([*lines, "</testsuite>", ""])


def rehearse(
    messages: Sequence[FailedMessage],
    handler: Handler,
    *,
    queue: str,
    jobs: int = 4,
    on_progress: Callable[[int], object] = lambda _: None,
) -> Rehearsal:
    """Try messages, each in a process of its own, several at a time.

    A KeyboardInterrupt ends it; what is known so far is in the result.

    Args:
        messages: the failed messages.
        handler: what handles them.
        queue: the queue that they failed in, for the report.
        jobs: how many messages are tried at a time.
        on_progress: called with the number of messages tried so far.

    Raises:
        ConfigurationError: the handler can't be loaded, or is for another queue.
    """
    name = handler.name or " ".join(handler.command)
    found = Rehearsal(queue, name, len(messages), version_of_service())
    results: dict[int, Tried] = {}
    left = iter(enumerate(messages))
    slots = [_Slot(handler) for _ in range(max(1, min(jobs, len(messages))))]
    try:
        with selectors.DefaultSelector() as selector:
            busy = {slot for slot in slots if slot.begin(next(left, None), selector)}
            while busy:
                ready = {key.data for key, _ in selector.select(_STEP)}
                for slot in list(busy):
                    answered = slot.result(selector) if slot in ready or slot.is_overdue else None
                    if answered is None:
                        continue
                    number, tried = answered
                    results[number] = tried
                    on_progress(len(results))
                    if _fail_alike(results):
                        found.stopped = (
                            f"Stopped after {len(results)} messages, which all failed in the same "
                            f"way at the {tried.stage}: {in_one_line(tried.error)}"
                        )
                    following = None if found.stopped else next(left, None)
                    if not slot.begin(following, selector):
                        busy.discard(slot)
    except KeyboardInterrupt:
        found.stopped = "Interrupted: the rest was not tried"
    finally:
        for slot in slots:
            slot.close()
    found.tried = [results[number] for number in sorted(results)]
    return found


class Rehearsed(NamedTuple):
    """What a report in JSON says.

    Args:
        queue: the queue whose messages were tried.
        ids: the ids of the failures that would succeed.
        in_words: the result and the version, for a job's reason.
    """

    queue: str
    ids: list[str]
    in_words: str

    @property
    def where(self) -> str:
        """The filter that matches the failures that would succeed."""
        return _where(self.ids)


def rehearsed_in(report: bytes | str, name: str) -> Rehearsed:
    """Read a report that `redrive failed try --output json` has printed.

    Args:
        report: the report.
        name: what to call it in errors.

    Raises:
        ConfigurationError: it can't be read, or no message would succeed.
    """
    try:
        said = json.loads(report)
        ids = [str(one["failure_id"]) for one in said["results"] if one["result"] == "succeeds"]
        queue, tried, version = str(said["queue"]), int(said["tried"]), str(said["version"] or "")
        began = datetime.fromisoformat(said["began"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigurationError(
            f"{name} is no report of a rehearsal: {type(error).__name__}",
            "Write one: redrive failed try QUEUE --handler … --output json > FILE",
        ) from error
    if not ids:
        raise ConfigurationError(
            f"no message of {name} would succeed", "Mend the handler, and try it again."
        )
    return Rehearsed(queue, ids, _in_words(len(ids), tried, version, began))


def _where(ids: Iterable[str]) -> str:
    quoted = ", ".join("'{}'".format(id_.replace("'", "''")) for id_ in ids)
    return f"failure_id IN ({quoted})"


def _in_words(good: int, tried: int, version: str, began: datetime) -> str:
    by = f" with {in_one_line(version)}" if version else ""
    when = began.astimezone(UTC)
    return f"rehearsed{by} at {when:%Y-%m-%d %H:%M} UTC: {good:,} of {tried:,} would succeed"


def _fail_alike(results: Mapping[int, Tried]) -> bool:
    """Whether the first messages all failed at the set-up with the same cause, so that others will
    not do better."""
    if len(results) != _ALIKE:
        return False
    causes = {one.after for one in results.values()}
    return len(causes) == 1 and all(
        one.stage == "set-up" and one.after is not None for one in results.values()
    )


def version_of_service() -> str:
    """Return the version that the environment gives, or the commit of the working directory."""
    given = os.environ.get(SERVICE_VERSION, "")
    if given:
        return given
    try:
        told = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--tags"],
            capture_output=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return told.stdout.decode(errors="replace").strip() if told.returncode == 0 else ""


def retried(message: FailedMessage) -> Delivery:
    """Return a message as it would be delivered after a requeue."""
    delivery = renewed(message.delivery)
    again = rewrite.requeue(delivery, job=_JOB, frame_max=FRAME_MAX)
    return replace(
        delivery,
        exchange=again.exchange,
        routing_key=again.routing_key,
        properties=again.properties,
        redelivered=False,
    )


def request_of(message: FailedMessage) -> dict[str, object]:
    """Return a message as it would be delivered after a requeue, as JSON values."""
    again = retried(message)
    properties = again.properties
    return {
        "id": message.failure_id,
        "message_id": message.message_id,
        "queue": message.queue,
        "routing_key": message.routing_key,
        "content_type": properties.content_type,
        "content_encoding": properties.content_encoding,
        "correlation_id": properties.correlation_id,
        "type": properties.type,
        "headers": properties.headers.to_dict(),
        "raw_properties": _base64(properties.encode()),
        "body": _base64(again.body),
    }


class _Slot:
    """A process that tries one message at a time, and is replaced when it dies."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._process: subprocess.Popen[bytes] | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the slot
        self._number = 0
        self._message: FailedMessage | None = None
        self._began = 0.0
        self._has_answered = False
        self._unsent = memoryview(b"")
        self._answer = b""

    def begin(
        self, numbered: tuple[int, FailedMessage] | None, selector: selectors.BaseSelector
    ) -> bool:
        """Hand a message to the process, and return whether there was one."""
        if numbered is None:
            return False
        self._number, self._message = numbered
        if self._process is None:
            self._start(selector)
        self._unsent = memoryview(
            json.dumps(request_of(self._message), default=str).encode() + b"\n"
        )
        self._answer = b""
        self._began = time.monotonic()
        self._send(selector)
        return True

    def _send(self, selector: selectors.BaseSelector) -> None:
        """Send as much of the message as the process takes now."""
        assert self._process is not None
        pipe = self._process.stdin
        assert pipe is not None
        waits = False
        while self._unsent and not waits:
            try:
                self._unsent = self._unsent[os.write(pipe.fileno(), self._unsent) :]
            except BlockingIOError:
                waits = True
            except BrokenPipeError:  # its end is noticed when its answer is read
                self._unsent = memoryview(b"")
        if waits is not (pipe in selector.get_map()):
            if waits:
                selector.register(pipe, selectors.EVENT_WRITE, self)
            else:
                selector.unregister(pipe)

    @property
    def is_overdue(self) -> bool:
        """Whether the process should have answered by now; keeps what it prints small meanwhile."""
        if os.fstat(self._output.fileno()).st_size > 16 * _MOST_OUTPUT:
            os.ftruncate(self._output.fileno(), _MOST_OUTPUT)
        return time.monotonic() - self._began > self._handler.answer_within

    def result(self, selector: selectors.BaseSelector) -> tuple[int, Tried] | None:
        """Return what came of the message: the answer, or what its absence means; None if there is
        neither yet."""
        assert self._message is not None
        if self.is_overdue:
            self._end(selector)
            timeout = HandlerTimeout(self._handler.timeout)
            error = report_of(timeout)
            answer: dict[str, object] | None = {
                "ok": False,
                "error_type": error.type,
                "error_message": error.message,
            }
        else:
            self._send(selector)
            answer = self._read(selector)
        if answer is None:
            return None
        return self._number, _tried(self._message, answer, self._printed())

    def _read(self, selector: selectors.BaseSelector) -> dict[str, object] | None:
        """Read what the process has written, and return the answer if there is a whole line."""
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            part = os.read(self._process.stdout.fileno(), 1 << 20)
        except BlockingIOError:
            return None
        self._answer += part
        if not part:
            return self._death(selector)
        if b"\n" in part or len(self._answer) > _LONGEST_ANSWER:
            return self._answer_in(self._answer)
        return None

    def close(self) -> None:
        """End the process."""
        self._end(None)
        self._output.close()

    def _answer_in(self, line: bytes) -> dict[str, object]:
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or not ("ok" in answer or "refused" in answer):
            raise ConfigurationError(
                f"the handler's process answered {in_one_line(line[:80].decode(errors='replace'))}",
                'Let it print one line for each message, such as {"ok": true}, and all else to '
                "standard error.",
            )
        if "refused" in answer:
            trace = redact(str(answer.get("traceback") or ""))
            raise HandlerRefused(str(answer["refused"]), str(answer.get("remedy") or ""), trace)
        self._has_answered = True
        return answer

    def _death(self, selector: selectors.BaseSelector) -> dict[str, object]:
        assert self._process is not None
        code = self._process.wait()
        self._end(selector)
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
        stage = "handler" if self._has_answered else "set-up"
        return {"ok": False, "died": f"its process {how}", "stage": stage}

    def _start(self, selector: selectors.BaseSelector) -> None:
        words = self._handler.words
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._appending(),
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise ConfigurationError(
                f"the command {words[0]!r} can't be started: {error.strerror or error}",
                "Check its name, and that it may be executed.",
            ) from error
        assert process.stdout is not None
        assert process.stdin is not None
        for pipe in (process.stdin, process.stdout):
            os.set_blocking(pipe.fileno(), False)
        selector.register(process.stdout, selectors.EVENT_READ, self)
        self._process, self._has_answered = process, False

    def _appending(self) -> int:
        import fcntl

        number = self._output.fileno()
        fcntl.fcntl(number, fcntl.F_SETFL, fcntl.fcntl(number, fcntl.F_GETFL) | os.O_APPEND)
        return number

    def _printed(self) -> str:
        """Return what was printed since the last message."""
        self._output.seek(0)
        printed = self._output.read(_MOST_OUTPUT + 1)
        os.ftruncate(self._output.fileno(), 0)
        text = printed[:_MOST_OUTPUT].decode(errors="replace")
        return redact(f"{text}\n[…]" if len(printed) > _MOST_OUTPUT else text)

    def _end(self, selector: selectors.BaseSelector | None) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        for pipe in (process.stdin, process.stdout):
            if selector is not None and pipe in selector.get_map():
                selector.unregister(pipe)
        for ending in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, ending)
                process.wait(2)
            except (ProcessLookupError, PermissionError, subprocess.TimeoutExpired):
                continue
        process.wait()
        for pipe in (process.stdin, process.stdout):
            try:
                pipe.close()
            except BrokenPipeError:
                continue


def _tried(message: FailedMessage, answer: Mapping[str, object], output: str) -> Tried:
    """Return what came of a message, from the answer of its process."""
    before = cause_of(message)
    published = answer.get("published")
    about = Tried(
        message.failure_id,
        message.message_id,
        before,
        None,
        stage=str(answer.get("stage") or "handler"),
        declined=bool(answer.get("declined")),
        seconds=_number(answer.get("seconds")),
        published={
            str(key): int(known)
            for key, count in published.items()
            if (known := _number(count)) is not None
        }
        if isinstance(published, dict)
        else {},
        output=output,
    )
    if answer["ok"] is True:
        return about
    died = answer.get("died")
    error_type, text, trace = (
        str(answer.get(name) or "") for name in ("error_type", "error_message", "traceback")
    )
    if died is not None:  # a worker would die as well; the broker counts how often
        error_type, text = crash_report(1).type, crash_report(1).message
    shown = str(died) if died is not None else f"{error_type}: {text}"
    return replace(
        about,
        after=cause_from(error_type, text, trace),
        error=redact(shown),
        traceback=redact(trace),
    )


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= _LARGEST_NUMBER else None  # not for NaN, either


def _time(seconds: float | None) -> str:
    return "" if seconds is None else f' time="{seconds:.3f}"'


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _json_of(cause: Cause) -> dict[str, object]:
    return {
        "group_id": cause.group_id,
        "error_type": cause.error_type or None,
        "message": cause.message or None,
        "frame": cause.frame or None,
    }


def _text(text: str) -> str:
    return escape(_NOT_XML.sub("�", text))


def _attribute(text: str) -> str:
    return quoteattr(_NOT_XML.sub("�", text))
