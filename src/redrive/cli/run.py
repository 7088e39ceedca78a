"""`redrive run`: runs an app, or the subscribers of a program."""

import asyncio
import contextlib
import importlib
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

import redrive
from redrive.cli import options
from redrive.cli.log_options import Level, LogFormat, LogFormatOption, LogLevelOption, log_to_stderr
from redrive.cli.metrics_server import MetricsAddress, place_of, serving
from redrive.cli.output import OutputFormat
from redrive.cli.worker_group import WorkerProcess
from redrive.errors import ConfigurationError
from redrive.pubsub.signals import until_signalled
from redrive.pubsub.subscriber_base import SubscriberBase
from redrive.pubsub.url import Endpoint

if TYPE_CHECKING:
    from redrive.pubsub.aio.application import AsyncApp
    from redrive.pubsub.aio.subscriber import AsyncSubscriber
    from redrive.pubsub.blocking.application import App

    Subscribers = Sequence["redrive.Subscriber | AsyncSubscriber"]


_EXAMPLE = "Give module:name, such as shop.orders:app."
_RUNNABLE = {
    "redrive.pubsub.blocking.application": ("App",),
    "redrive.pubsub.aio.application": ("AsyncApp",),
    "redrive.pubsub.blocking.subscriber": ("Subscriber",),
    "redrive.pubsub.aio.subscriber": ("AsyncSubscriber",),
}
"""Classes of what can be run, by module. A module that the program has not imported has no
instances, and its client may not be installed."""


class Program(NamedTuple):
    """What to run.

    Args:
        app: the app; None if there are only subscribers.
        subscribers: the subscribers to run, of the app or by themselves.
        only: the queues of an app to consume; None for all of them.
    """

    app: "App | AsyncApp | None"
    subscribers: "Subscribers"
    only: Sequence[str] | None

    def run(self) -> None:
        """Run it until SIGTERM or Ctrl-C, or until one of its subscribers fails."""
        subscribers: Sequence[Any] = self.subscribers
        if self.app is not None:
            running = self.app.run(self.only)
            if running is not None:
                asyncio.run(running)
        elif all(_is(one, "Subscriber") for one in subscribers):
            redrive.run(*subscribers)
        else:
            asyncio.run(redrive.run_async(*subscribers))

    def check_may_be_several(self) -> None:
        """Check that several processes may run it; an ordered queue allows only one."""
        for one in self.subscribers:
            if one.subscription.ordered:
                raise ConfigurationError(
                    f"queue {one.subscription.queue!r} is ordered: one process handles it, and "
                    "more workers would only wait",
                    "Run it by itself, without --workers; an app runs the others with --only.",
                )


def program_at(targets: Sequence[str], only: Sequence[str] | None = None) -> Program:
    """Return the program that these targets name: one app, or subscribers of one kind."""
    found = list(dict.fromkeys(map(_found_at, targets)))
    apps = [one for one in found if not isinstance(one, SubscriberBase)]
    if apps and len(found) > 1:
        raise ConfigurationError(
            f"{targets[found.index(apps[0])]} is an app, and there are other targets",
            "Run each app by itself. An app includes subscribers through routers.",
        )
    if apps:
        app = apps[0]
        run = app._run_of(only)
        return Program(app, [one for one, _ in run.subscribers], only)
    if only is not None:
        raise ConfigurationError(
            "--only is for an app, and these are subscribers", "Name only the subscribers to run."
        )
    blocking = [one for one in found if _is(one, "Subscriber")]
    asynchronous = [one for one in found if _is(one, "AsyncSubscriber")]
    if blocking and asynchronous:
        raise ConfigurationError(
            f"queue {blocking[0].subscription.queue!r} has a Subscriber, and queue "
            f"{asynchronous[0].subscription.queue!r} an AsyncSubscriber",
            "Run them in two processes, each with a `redrive run` of its own.",
        )
    return Program(None, found, None)


def _found_at(target: str) -> Any:
    """Return the app or the subscriber that `module:name` names."""
    module_name, separator, path = target.partition(":")
    if not separator or not module_name or not path:
        raise ConfigurationError(f"{target!r} does not name an app or a subscriber", _EXAMPLE)
    found: object = _module(module_name)
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            raise ConfigurationError(
                f"the module {module_name!r} has no {path!r}", _runnable_in(module_name)
            ) from error
    if not _is(found, "App", "AsyncApp", "Subscriber", "AsyncSubscriber"):
        raise ConfigurationError(
            f"{target} is of type {type(found).__name__}, not an app or a subscriber",
            _runnable_in(module_name),
        )
    return found


def _is(value: object, *names: str) -> bool:
    """Return whether a value is an instance of one of these classes."""
    return any(
        isinstance(value, getattr(sys.modules[module], name))
        for module, classes in _RUNNABLE.items()
        for name in classes
        if name in names and module in sys.modules
    )


def _module(name: str) -> object:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigurationError(
                f"there is no module {name!r} in {os.getcwd()} or installed",
                "Check the name and the directory.",
            ) from error
        raise _broken(name, error) from error
    except redrive.RedriveError:
        raise
    except Exception as error:  # a program may raise anything while it is imported
        raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> ConfigurationError:
    place = ""
    trace = (
        None if isinstance(error, SyntaxError) else error.__traceback__
    )  # the text of a SyntaxError says where it is
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith("<frozen"):
            place = f" ({trace.tb_frame.f_code.co_filename}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return ConfigurationError(
        f"the module {name!r} can't be imported: {type(error).__name__}: "
        f"{' '.join(str(error).split())}{place}",
        "REDRIVE_DEBUG=1 shows the traceback.",
    )


def _runnable_in(module_name: str) -> str:
    module = vars(sys.modules[module_name])
    names = [name for name, value in module.items() if _is(value, "App", "AsyncApp")] or [
        name for name, value in module.items() if _is(value, "Subscriber", "AsyncSubscriber")
    ]
    if not names:
        return f"There is no app and no subscriber in {module_name}."
    return f"There is {' and '.join(f'{module_name}:{name}' for name in names)}."


logger = logging.getLogger("redrive")

_MOMENT = 0.1


class Reloader:
    """A supervisor of one worker, which it replaces when Python files below the current directory
    change. If the worker ends by itself, the next one starts after a change."""

    def __init__(self, words: Sequence[str]) -> None:
        try:
            import watchfiles  # noqa: F401 - check that it is installed
        except ImportError as error:
            raise ConfigurationError(
                "--reload needs watchfiles, which is not installed", "pip install 'redrive[reload]'"
            ) from error
        self._words = words
        self._worker: WorkerProcess | None = None
        self._changed = threading.Event()
        self._changed.set()
        self._is_ending = False

    def run(self) -> None:
        """Run until SIGTERM or Ctrl-C."""
        with self._watching():
            try:
                until_signalled(self._is_done, stop=self._stop, abort=self._leave)
            finally:
                if self._worker is not None:
                    self._worker.kill()

    def _is_done(self) -> bool:
        if self._worker is not None and (code := self._worker.code) is not None:
            self._worker.stop()
            self._worker = None
            if not self._is_ending and not self._changed.is_set():
                logger.warning("the program ended with code %d; waiting for a change", code)
        if self._worker is None:
            if self._is_ending:
                return True
            if self._changed.is_set():
                self._changed.clear()
                self._worker = WorkerProcess(self._words, "the program")
        elif self._changed.is_set():
            self._worker.stop()
        time.sleep(_MOMENT)
        return False

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Watch the files for the duration of the block."""
        import watchfiles

        over = threading.Event()

        def watch() -> None:
            python_files = watchfiles.PythonFilter()
            for changes in watchfiles.watch(
                os.getcwd(), watch_filter=python_files, stop_event=over, raise_interrupt=False
            ):
                paths = sorted({os.path.relpath(path) for _, path in changes})
                logger.info("%s changed: starting over", _listed(paths))
                self._changed.set()

        thread = threading.Thread(target=watch, name="redrive-reload", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _stop(self) -> None:
        self._is_ending = True
        if self._worker is not None:
            self._worker.stop()

    def _leave(self) -> None:
        if self._worker is not None:
            self._worker.leave()


def _listed(paths: Sequence[str]) -> str:
    shown = [Path(path).as_posix() for path in paths[:3]]
    return ", ".join(shown) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


def run(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="MODULE:NAME",
            help="The app to run, or one subscriber or more: shop.service:app.",
        ),
    ],
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="QUEUE",
            show_default=False,
            help="Consume only this queue of an app. Can be repeated.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="N",
            min=1,
            max=256,
            show_default=False,
            help="Run this many processes, each with all subscribers. One that dies is restarted.",
        ),
    ] = None,
    reload: Annotated[
        bool,
        typer.Option(
            "--reload",
            help="While you write the program: start over when a Python file below the current "
            "directory changes.",
        ),
    ] = False,
    log_level: LogLevelOption = Level.INFO,
    log_format: LogFormatOption = LogFormat.TEXT,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            metavar="HOST:PORT",
            show_default=False,
            help="Serve /metrics for Prometheus, /health and /ready at this address. :9464 is that "
            "port on every interface; write an IPv6 address in brackets, [::1]:9464. With "
            "--workers, the second worker has the next port, and so on.",
        ),
    ] = None,
    management_url: Annotated[
        str | None,
        typer.Option(
            "--management-url",
            metavar="URL",
            show_default=False,
            help="With --metrics: the management API of the subscribers' broker, such as "
            "http://rabbit:15672, to measure how many messages are in their queues too.",
        ),
    ] = None,
    url: Annotated[str | None, typer.Option("--url", hidden=True)] = None,
    exchange: Annotated[str | None, typer.Option("--exchange", hidden=True)] = None,
    worker: Annotated[int | None, typer.Option("--worker", hidden=True)] = None,
    output: options.Output = OutputFormat.TABLE,
) -> int:
    """Run an app, or the subscribers of a program.

    An App or an AsyncApp runs with all of its subscribers, or with those of the queues that --only
    names. Subscribers without an app must all be Subscribers, or all AsyncSubscribers, which share
    one event loop. All run until SIGTERM or Ctrl-C; then the command waits for the handlers that
    are running and exits with 0; a second signal ends it at once. Modules are imported with the
    current directory on the path. Each subscriber connects to the broker that the program gave it,
    an app without a URL to the one of REDRIVE_URL.

    \b
    Examples:
      redrive run shop.service:app --workers 4 --metrics :9464
      redrive run shop.service:app --only ucenter@user --reload
      redrive run shop.orders:subscriber shop.users:subscriber
    """
    for name, value in (("--url", url), ("--exchange", exchange)):
        if value is not None:
            raise ConfigurationError(
                f"run takes no {name}: the program has its own",
                f"Leave {name} out and set it in the program.",
            )
    if management_url is not None and metrics is None:
        raise ConfigurationError(
            "--management-url is for what --metrics serves", "Give --metrics too."
        )
    if reload and workers is not None:
        raise ConfigurationError(
            "--reload is for one process, and --workers for several", "Leave one of them out."
        )
    place = None if metrics is None else place_of(metrics)
    log_to_stderr(log_level, log_format)

    def words(number: int) -> list[str]:
        """Return the arguments of the worker with this number, from 1."""
        told = ["run", *targets, "--log-level", log_level, "--log-format", log_format]
        for queue in only or ():
            told += ["--only", queue]
        if place is not None:
            told += ["--metrics", str(_next_place(place, number - 1))]
        if management_url is not None:
            told += ["--management-url", management_url]
        return [*told, "--output", output, "--worker", str(number)]

    if reload:
        Reloader(words(1)).run()
        return 0
    if worker is not None:
        from redrive.cli.worker_group import end_with_parent

        end_with_parent()
    sys.path.insert(0, os.getcwd())
    program = program_at(targets, only)
    if workers is not None:
        from redrive.cli.worker_group import WorkerGroup

        program.check_may_be_several()
        return WorkerGroup(workers, words).run()
    with (
        contextlib.nullcontext()
        if place is None
        else serving(place, program.subscribers, management_url)
    ):
        program.run()
    return 0


def _next_place(place: MetricsAddress, further: int) -> Endpoint:
    """Return the address this many ports further; port 0 stays any free port."""
    return Endpoint(place.host, place.port + further if place.port else 0)
