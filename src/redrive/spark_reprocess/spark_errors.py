"""Turn the error of a failed Spark job into a redrive error: the one that a task raised, parsed
from Spark's message."""

import contextlib
import re
from collections.abc import Iterator
from importlib.util import find_spec

from redrive.errors import BrokerUnavailable, ConfigurationError, PermissionDenied, RedriveError
from redrive.redaction import redact

_OURS = re.compile(
    r"redrive\.errors\.(?P<kind>[A-Za-z]+): (?P<problem>[^\n]+)(?:\n(?P<remedy>[^\n]+))?"
)
_UNAVAILABLE = re.compile(r"RabbitMQ at (?P<address>\S+) can't be used: (?P<reason>.*?)\.?$")
_RAISED = re.compile(
    r"^(?P<kind>[A-Za-z_][\w.]*(?:Error|Exception)): (?P<problem>[^\n]+)$", re.MULTILINE
)
_UNREAD = re.compile(
    r"\[FAILED_READ_FILE[\w.]*\] Encountered error while reading file "
    r"(?P<file>[^\n]+?)\.\s+SQLSTATE"
)
_JAVA = re.compile(
    r"^(?:Caused by)?: (?:[\w$]+\.)*(?P<kind>[\w$]+): (?P<problem>[^\n]+)$", re.MULTILINE
)
_REMEDY = (
    "Run it again: it continues where it stopped. The logs of Spark's executors have more details."
)


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Raise Spark's errors from the block as redrive errors."""
    try:
        yield
    except spark_errors() as error:
        raise error_of(str(error)) from error
    except ConnectionError as error:  # the JVM is gone
        raise ConfigurationError(
            f"Spark ended before the job was done ({error})", _REMEDY
        ) from error


def spark_errors() -> tuple[type[Exception], ...]:
    """Return what Spark raises. A client of Spark Connect alone has no py4j."""
    from pyspark.errors import PySparkException

    if find_spec("py4j") is None:
        return (PySparkException,)
    from py4j.protocol import Py4JError

    return (PySparkException, Py4JError)


def first_line(error: BaseException) -> str:
    """Return what an error of Spark says first, or the exception of Java that it names."""
    lines = [line.strip() for line in redact(str(error)).splitlines() if line.strip()]
    causes = [
        line.removeprefix(": ") for line in lines if "Exception: " in line or "Error: " in line
    ]
    return (causes or lines or [type(error).__name__])[0][:300]


def error_of(text: str) -> RedriveError:
    """Return the error that Spark's message describes."""
    ours = list(_OURS.finditer(text))
    unread = _UNREAD.search(text)
    if not ours and unread is not None:
        file = unread["file"].removeprefix("file://")
        return ConfigurationError(
            redact(f"{file} is damaged, or can't be read"), "Restore it, and run it again."
        )
    if not ours:
        raised = _RAISED.findall(text) or _JAVA.findall(text)
        kind, problem = (
            raised[-1]
            if raised
            else (
                "",
                next((line for line in text.splitlines() if line.strip()), "it did not say why"),
            )
        )
        return ConfigurationError(
            redact(f"the Spark job failed: {f'{kind}: ' if kind else ''}{problem}")[:400], _REMEDY
        )
    found = ours[-1]
    problem, remedy = found["problem"].strip(), (found["remedy"] or "").strip()
    if remedy.startswith(("at ", "File ", "Traceback")):
        remedy = ""
    unavailable = _UNAVAILABLE.match(problem)
    match found["kind"]:
        case "BrokerUnavailable" if unavailable is not None:
            return BrokerUnavailable(unavailable["address"], unavailable["reason"], remedy)
        case "PermissionDenied":
            return PermissionDenied(problem.removesuffix("."), remedy)
        case _:
            return ConfigurationError(problem, remedy)
