"""The arrows of the design: which part of redrive may import what."""

import ast
import functools
import importlib.util
import sys
from collections.abc import Callable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import redrive

SOURCE = Path(redrive.__file__).parent
ROOT = Path(__file__).resolve().parents[3]
MODULES = sorted(SOURCE.rglob("*.py"))

BYTES = frozenset({"amqp", "duration_text", "errors", "number_text", "redaction", "strict_json"})
PURE = BYTES | {"topology"}
MAY_IMPORT = {
    "redaction": frozenset({"redaction"}),
    "duration_text": frozenset({"duration_text"}),
    "number_text": frozenset({"number_text"}),
    "strict_json": frozenset({"strict_json"}),
    "errors": frozenset({"duration_text", "errors", "redaction"}),
    "amqp": BYTES,
    "topology": PURE,
    "pubsub": PURE | {"pubsub"},
    "failures": PURE | {"pubsub", "failures"},
    "spark": PURE | {"pubsub", "failures", "spark_reprocess"},
    "cli": PURE | {"pubsub", "spark_reprocess", "failures", "web", "cli", "testing", ""},
    "web": PURE | {"pubsub", "failures", "web"},
    "spark_reprocess": PURE | {"pubsub", "failures", "spark_reprocess", ""},
    "testing": PURE | {"pubsub", "testing", ""},
    "": PURE | {"pubsub", "failures", ""},
}
"""What each part of redrive may import of it; the empty name is the package itself, which gives the
public names."""

ROOMS = ("message", "store", "queue", "jobs", "wording", "failed_queue", "aio", "rehearsal")
"""The parts of `failures`, in the order in which they build on each other."""

IMPURE = frozenset(
    {
        "asyncio",
        "concurrent",
        "http",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "platform",
        "random",
        "secrets",
        "select",
        "selectors",
        "signal",
        "socket",
        "ssl",
        "subprocess",
        "sys",
        "tempfile",
        "threading",
        "time",
        "urllib",
        "uuid",
    }
)
TOPOLOGY_LIBRARIES = (sys.stdlib_module_names - IMPURE) | {"pydantic"}
CLOCKS = frozenset({"now", "utcnow", "today"})


def part_of(module: Path) -> str:
    """The part of redrive that a file belongs to."""
    first = module.relative_to(SOURCE).parts[0].removesuffix(".py")
    return "" if first.startswith("__") else first


@functools.cache
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


@functools.cache
def text_of(module: Path) -> str:
    return module.read_text(encoding="utf-8")


def imported(source: str) -> Iterator[str]:
    """The dotted name of each module that a source imports, wherever in it."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield "." * node.level + (node.module or "")
        elif isinstance(node, ast.ImportFrom) and node.module == "redrive":
            yield from (f"redrive.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def forbidden_imports(part: str, source: str) -> list[str]:
    """What a source of this part imports and must not."""
    return [name for name in imported(source) if not _is_allowed(part, name)]


def _is_allowed(part: str, name: str) -> bool:
    library, _, rest = name.partition(".")
    if library == "redrive":
        target = rest.split(".")[0]
        return (target if target in MAY_IMPORT else "") in MAY_IMPORT[part]
    if not library:
        return False
    return library in TOPOLOGY_LIBRARIES if part in PURE else True


def clock_readings(source: str) -> list[int]:
    """The lines that ask a clock for the time."""
    return [
        node.lineno
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in CLOCKS
    ]


def _name(module: Path) -> str:
    return module.relative_to(SOURCE).as_posix()


def faults_of(check: Callable[[Path], object], *parts: str) -> dict[str, object]:
    """What a check finds in the modules of some parts, or of all, by module."""
    found = {
        _name(module): check(module) for module in MODULES if not parts or part_of(module) in parts
    }
    return {name: faults for name, faults in found.items() if faults}


def test_arrows_point_one_way() -> None:
    assert faults_of(lambda module: forbidden_imports(part_of(module), text_of(module))) == {}


def test_the_pure_part_looks_at_no_clock() -> None:
    assert faults_of(lambda module: clock_readings(text_of(module)), *PURE) == {}


def test_what_the_shells_share_knows_no_client_and_each_shell_only_its_own() -> None:
    assert faults_of(clients_of_others, "pubsub") == {}


def clients_of_others(module: Path) -> set[str]:
    """What a module of `pubsub` imports that only another shell may."""
    names = set(imported(text_of(module)))
    shell = module.parent.name
    on_a_thread = module.name in ("declarer.py", "outcome_reporter.py")
    found = set()
    if shell not in ("blocking", "transfer", "admin"):
        found |= {name for name in names if name.partition(".")[0] == "pika"}
    if shell != "aio":
        clients = ("aiormq", "aio_pika", "pamqp")
        found |= {name for name in names if name.partition(".")[0] in clients}
        found |= {name for name in names if "pubsub.aio" in name}
    if shell == "pubsub" or (shell == "aio" and not on_a_thread):
        found |= {name for name in names if "pubsub.blocking" in name}
    return found


TRIAGE_API = {
    "database": {"AnswerLimits"},
    "alert": {"ThresholdAlarm"},
    "answer_file": {"parquet_of"},
    "csv_text": {"csv_of"},
    "approval": {"approve", "ask_as_planned", "plan_to_ask"},
    "approval_rule": {"check_may_approve", "check_seen", "is_same", "waits_for_none"},
    "canary": {"Guards", "Unknown"},
    "cause": {"Cause", "TracebackPart", "cause_of", "parts_of"},
    "cause_remarks": {"CauseRemarks", "CauseStatus"},
    "cause_example": {"own_code", "parts_of_message", "trace_of"},
    "cause_history": {"jobs_of"},
    "cause_remark": {"SAYABLE", "CauseRemark", "CauseState", "RemarkKind"},
    "columns": {"BODIES", "BY_NAME", "COLUMNS"},
    "depth_watch": {"Reading"},
    "discard_job": {"Chosen", "discard_into"},
    "edit": {"as_before", "laid_out", "difference"},
    "facet": {"Facet", "FacetValue", "offered"},
    "failed_count": {"dead_lettering", "depths", "held_back"},
    "failed_message": {"FailedMessage"},
    "failed_queue": {"FailedQueue", "carry_out", "plan_order"},
    "failed_queue_base": {"consumers_of", "source_of", "whereabouts_of"},
    "failed_source": {"FailedSource"},
    "failure_feed": {"FeedState"},
    "filter": {"failed_before", "moment_before", "Filter", "OpenFilter", "Predicate"},
    "filter_terms": {"joined", "terms_of"},
    "follower": {"Follower"},
    "fixtures": {"sample", "write_fixtures"},
    "groups": {"SharedIds", "Group", "Groups", "Key"},
    "index": {"MOST_BYTES", "default_folder"},
    "job": {"Job", "write_down"},
    "job_stop": {"check_alone", "in_words", "running_on", "ask_to_stop", "stop"},
    "job_record": {"JobOutcome", "JobRecord", "RunProgress", "State"},
    "journal": {"Journal"},
    "journal_entry": {"JobEvent", "JobStep"},
    "journal_stream": {"DEFAULT_MAX_AGE"},
    "kept_messages": {"Neighbours", "CauseHistory"},
    "local_journal": {"LocalJournal", "default_path"},
    "look": {
        "NothingFound",
        "AnswerLimits",
        "FirstMessages",
        "Keep",
        "Look",
        "NothingKept",
        "QueryResult",
        "CachePolicy",
    },
    "look_reporter": {"OnLook"},
    "mask": {"Mask", "check_patch"},
    "masked_messages": {"check_filter", "masked_look"},
    "message_source": {"MessageSource", "answer_of", "checked_query", "column_named"},
    "operator_name": {"acting_for"},
    "operator_rights": {"OperatorRights", "check_login"},
    "order": {"Fact", "filter_facts", "order_facts", "Order"},
    "outcome_watch": {"MessageCounts"},
    "overview": {"Overview", "SharedGroup"},
    "pauses": {"order", "paused"},
    "plan": {"Plan"},
    "readable_values": {
        "body_of",
        "body_text_of",
        "headers_of",
        "is_json",
        "plain_of",
        "value_of",
    },
    "rehearsal": {"Handler", "HandlerRefused", "Rehearsal", "rehearse", "rehearsed_in"},
    "requeue": {"Cancel", "Progress"},
    "requeue_job": {"OutcomeCounts"},
    "restore_target": {
        "RestoreTarget",
        "digests_in",
        "missing_from",
        "place_of",
        "restored",
    },
    "run_reporter": {"RunReporter"},
    "route": {"WayBack", "NO_WAY", "Route", "Verdict"},
    "snapshot": {"Snapshot"},
    "way": {"way_of"},
    "wording": {
        "JobTotals",
        "causes_of",
        "status_facts",
        "job_facts",
        "job_json",
        "result_facts",
        "state_in_words",
    },
}
"""What a shell may take of `failures`, by module: what is asked and done there, and the values that
are given and returned. The rest is the engine."""


def test_each_part_of_failures_imports_only_those_before_it() -> None:
    assert faults_of(lambda module: imports_of_later_rooms(_name(module), text_of(module))) == {}


def imports_of_later_rooms(module: str, source: str) -> list[str]:
    """What a module of `failures` imports from rooms that are built on its own."""
    part, _, rest = module.partition("/")
    if part != "failures" or rest == "__init__.py":
        return []
    own = ROOMS.index(rest.split("/")[0].removesuffix(".py"))
    rooms = {name: name.split(".")[2] for name in imported(source) if "redrive.failures." in name}
    return [name for name, room in rooms.items() if ROOMS.index(room) > own]


def test_a_shell_takes_nothing_deeper_of_the_engine_than_its_api() -> None:
    assert faults_of(deeper_imports, "cli", "web") == {}


def deeper_imports(module: Path) -> list[str]:
    """What a module imports of `failures` beside its API."""
    return [
        f"{node.module}.{alias.name}"
        for node in ast.walk(parsed(text_of(module)))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("redrive.failures.")
        for alias in node.names
        if alias.name not in TRIAGE_API.get(str(node.module).rpartition(".")[2], ())
    ]


def test_a_shell_of_triage_speaks_to_no_broker_itself() -> None:
    def brokers_asked(module: Path) -> set[str]:
        of_triage = ("failed", "jobs", "job_", "look")
        if part_of(module) == "cli" and not module.name.startswith(of_triage):
            return set()
        # A pool only has connections of others shared.
        names = set(imported(text_of(module))) - {"redrive.pubsub.blocking.connection_pool"}
        return {name for name in names if "pubsub.blocking" in name or "pubsub.transfer" in name}

    assert faults_of(brokers_asked, "cli", "web") == {}


def test_no_module_imports_itself_over_others() -> None:
    imports = {_dotted(module): set(_modules_imported(module)) for module in MODULES}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(f"a circle: {' -> '.join(error.args[1])}")


@functools.cache
def _known() -> frozenset[str]:
    return frozenset(_dotted(module) for module in MODULES)


def _dotted(module: Path) -> str:
    return ".".join(module.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(
        ".__init__"
    )


def _modules_imported(module: Path) -> Iterator[str]:
    known = _known()
    for node in ast.walk(parsed(text_of(module))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("redrive"):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                # The package gives the public names, which are imported when they are asked for.
                if inner in known or node.module != "redrive":
                    yield inner if inner in known else node.module


@pytest.mark.parametrize("link", sorted(path.name for path in ROOT.iterdir() if path.is_symlink()))
def test_a_link_at_the_top_of_the_repository_is_no_second_way_to_import_a_part(link: str) -> None:
    assert importlib.util.find_spec(link) is None


def test_every_part_of_the_package_has_its_arrows() -> None:
    assert {part_of(module) for module in MODULES} <= set(MAY_IMPORT)


# --- the walk itself ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("topology", "import socket"),
        ("topology", "import os.path"),
        ("topology", "from time import monotonic"),
        ("topology", "def f() -> None:\n    import random"),
        ("topology", "import pika"),
        ("topology", "from redrive.pubsub import config"),
        ("topology", "from redrive import pubsub"),
        ("topology", "from redrive import Publisher"),
        ("topology", "import redrive"),
        ("topology", "from . import names"),
        ("topology", "from .names import retry_queue"),
        ("pubsub", "from redrive.cli import main"),
        ("pubsub", "from redrive.testing import broker"),
        ("pubsub", "from redrive.failures import columns"),
        ("failures", "from redrive.cli import main"),
        ("failures", "from redrive import Publisher"),
        ("spark_reprocess", "from redrive.cli import main"),
        ("web", "from redrive.cli import output"),
        ("failures", "from redrive.web import console"),
        ("amqp", "from redrive.topology import names"),
        ("errors", "from redrive.amqp import field_table"),
        ("redaction", "from redrive.errors import RedriveError"),
    ],
)
def test_an_import_against_the_arrows_is_found(part: str, source: str) -> None:
    assert len(forbidden_imports(part, source)) == 1


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("topology", "from redrive.topology import names"),
        ("topology", "from datetime import datetime"),
        ("topology", "from pydantic import BaseModel"),
        ("pubsub", "import pika, socket, time, logging, os"),
        ("pubsub", "from redrive.topology.decision import decide"),
        ("failures", "from redrive.pubsub.message import ReceivedMessage"),
        ("cli", "from redrive import Publisher"),
        ("cli", "from redrive.failures import columns"),
        ("spark_reprocess", "from redrive.pubsub.message import Message"),
        ("cli", "from redrive.spark_reprocess import job"),
        ("cli", "from redrive.web import console"),
        ("web", "from redrive.failures.failed_queue import FailedQueue"),
    ],
)
def test_an_import_along_the_arrows_is_allowed(part: str, source: str) -> None:
    assert forbidden_imports(part, source) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("message/cause.py", "from redrive.failures.store.filter import Filter"),
        ("store/look.py", "from redrive.failures.queue import plan"),
        ("queue/plan.py", "from redrive.failures.jobs.job import Job"),
        ("jobs/job.py", "from redrive.failures.failed_queue import FailedQueue"),
    ],
)
def test_an_import_of_a_later_part_of_failures_is_found(module: str, source: str) -> None:
    assert len(imports_of_later_rooms(f"failures/{module}", source)) == 1


@pytest.mark.parametrize(
    "source", ["datetime.now(UTC)", "datetime.datetime.utcnow()", "date.today()"]
)
def test_a_look_at_the_clock_is_found(source: str) -> None:
    assert clock_readings(source) == [1]


def test_a_time_that_was_given_is_no_look_at_the_clock() -> None:
    assert clock_readings("iso(context.now)") == []
