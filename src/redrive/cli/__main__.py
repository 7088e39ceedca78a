"""The command `redrive`: runs the application, and turns every outcome into an exit code and a line
or two.

0  success
1  a problem was found: something is missing, or is not as it should be
2  the command could not run: wrong arguments, the configuration, the broker, a permission
130 and 141  Ctrl-C, and a reader that closed the pipe
"""

import gc
import itertools
import json
import os
import sys
from collections.abc import Sequence

from redrive.errors import RedriveError, TopologyMismatch, Unroutable
from redrive.redaction import printable, redact

DONE, WRONG, COULD_NOT, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 130, 141

_EXTRAS = {
    "cli": (
        "typer",
        "click",
        "rich",
        "httpx",
        "duckdb",
        "yaml",
        "jsonpatch",
        "jsonpointer",
        "platformdirs",
    ),
    "spark": ("pyspark", "py4j", "pyarrow", "pandas", "numpy"),
    "metrics": ("opentelemetry", "prometheus_client"),
    "web": ("starlette", "jinja2", "markupsafe", "uvicorn", "anyio", "h11"),
    "settings": ("pydantic_settings",),
    "reload": ("watchfiles",),
    "testing": ("testcontainers", "filelock"),
}
"""The packages that each extra installs, by import name."""
_CLIENTS = frozenset({"pika", "aiormq"})
"""Client libraries of untested versions are refused at import; the error says what to install."""
_REPORT = "This is a bug in redrive: please report it. REDRIVE_DEBUG=1 shows the traceback."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code. No exception reaches the user."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        # A command imports 300,000 objects that all stay: by default, a sixth of the start goes
        # into looking for garbage among them.
        gc.set_threshold(50_000, 20, 20)
    _prepare_streams()
    try:
        from redrive.cli.app import app

        code = app(words, prog_name="redrive", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        return _closed_pipe()
    except SystemExit as exit_:
        # typer handles a closed pipe itself, and exits with 1.
        return (
            _closed_pipe()
            if isinstance(exit_.__context__, BrokenPipeError)
            else _code_of(exit_.code)
        )
    except BaseException as error:  # noqa: BLE001 — no exception may escape from here
        return _report(error, as_json=_wants_json(words))
    return _code_of(code)


def _extra_of(module: str | None) -> str | None:
    """Return the extra that installs a module; None for any other module."""
    library = (module or "").partition(".")[0]
    return next((extra for extra, brings in _EXTRAS.items() if library in brings), None)


def _code_of(code: object) -> int:
    return code if isinstance(code, int) else DONE


def _report(error: BaseException, *, as_json: bool) -> int:
    """Print what went wrong to stderr; return the exit code."""
    if isinstance(error, ModuleNotFoundError) and (extra := _extra_of(error.name)) is not None:
        problem = f"this command needs {error.name}, which is not installed"
        remedy = f"pip install 'redrive[{extra}]'"
        # Not through redrive.cli.output: it may need what is not installed.
        if as_json:
            said = {"kind": "ConfigurationError", "problem": problem, "remedy": remedy}
            print(json.dumps({"error": said}), file=sys.stderr)
        else:
            print(f"Error: {problem}\n{remedy}", file=sys.stderr)
        return COULD_NOT
    if isinstance(error, ImportError) and error.name in _CLIENTS:
        print(f"Error: {error}", file=sys.stderr)
        return COULD_NOT
    from redrive.cli import output
    from redrive.failures.store.look import NothingFound

    if os.environ.get("REDRIVE_DEBUG"):
        import traceback

        print(
            printable(redact("".join(traceback.format_exception(error)))), file=sys.stderr, end=""
        )
    usage = getattr(error, "format_message", None)
    if isinstance(error, RedriveError):
        problem, _, remedy = str(error).partition("\n")
        output.error(type(error).__name__, problem, remedy, as_json=as_json)
        return (
            WRONG if isinstance(error, TopologyMismatch | Unroutable | NothingFound) else COULD_NOT
        )
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Abort":
        output.error("Interrupted", "interrupted", "", as_json=as_json)
        return INTERRUPTED
    if usage is not None:
        output.error("UsageError", _sentence(usage()), _help_for(error), as_json=as_json)
        return COULD_NOT
    output.error(
        type(error).__name__,
        f"unexpected {type(error).__name__}: {error}".replace("\n", " "),
        _REPORT,
        as_json=as_json,
    )
    return COULD_NOT


def _sentence(text: str) -> str:
    """Return an error of the command line on one line, without the validator's own words."""
    line = " ".join(text.split())
    return line.replace(": Value error, ", ": ").replace(": Input should be", ": it should be")


def _help_for(error: object) -> str:
    context = getattr(error, "ctx", None)
    return f"See: {context.command_path if context is not None else 'redrive'} --help"


def _wants_json(words: Sequence[str]) -> bool:
    """Return whether the command line asks for JSON. It is not parsed: an error about a line that
    can't be parsed must be JSON too."""
    before = list(words[: words.index("--")] if "--" in words else words)
    return "--output=json" in before or any(
        pair == ("--output", "json") for pair in itertools.pairwise(before)
    )


def _prepare_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal can't show must not end the command.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _closed_pipe() -> int:
    # Python flushes stdout again at exit, and would complain about the closed pipe.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return PIPE_CLOSED


if __name__ == "__main__":
    sys.exit(main())
