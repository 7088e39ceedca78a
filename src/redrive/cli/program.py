"""The program that `redrive run` runs: one app, or subscribers, named as `module:name`."""

import asyncio
import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import redrive
from redrive.errors import ConfigurationError
from redrive.pubsub.subscriber_base import SubscriberBase

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
"""Classes of what can be run, by their modules. Those that the program has not imported, nothing is
of, and their client may not be installed."""


class Program(NamedTuple):
    """What is to run.

    Args:
        app: the app; None where there are only subscribers.
        subscribers: which of its subscribers run, or all that there are.
        only: the queues of an app that are consumed; None for all of them.
    """

    app: "App | AsyncApp | None"
    subscribers: "Subscribers"
    only: Sequence[str] | None

    def run(self) -> None:
        """Runs it until SIGTERM or Ctrl-C, or until one of its subscribers fails.

        Raises:
            RedriveError: why one could not run.
        """
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
        """Refuses what only one process at a time does.

        Raises:
            ConfigurationError: a subscriber is ordered.
        """
        for one in self.subscribers:
            if one.subscription.ordered:
                raise ConfigurationError(
                    f"queue {one.subscription.queue!r} is ordered: one process handles it, and "
                    "more workers would only wait",
                    "Run it by itself, without --workers; an app runs the others with --only.",
                )


def program_at(targets: Sequence[str], only: Sequence[str] | None = None) -> Program:
    """The program that these name: one app, or subscribers of one shell.

    Raises:
        ConfigurationError: one names nothing that can be run, whether by its module or its name; an
            app has company; subscribers are of both shells; there is no such queue.
    """
    found = list(dict.fromkeys(map(_found_at, targets)))
    apps = [one for one in found if not isinstance(one, SubscriberBase)]
    if apps and len(found) > 1:
        raise ConfigurationError(
            f"{targets[found.index(apps[0])]} is an app, and not the only one to run",
            "Run each app by itself; an app includes subscribers by routers.",
        )
    if apps:
        app = apps[0]
        run = app._run_of(only)
        return Program(app, [one for one, _ in run.subscribers], only)
    if only is not None:
        raise ConfigurationError(
            "--only is for an app, and these are subscribers", "Name only those that are to run."
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
    """What `module:name` names: an app, or a subscriber."""
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
    """Whether it is an instance of one of these classes."""
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
    except Exception as error:  # whatever a program raises while it is imported
        raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> ConfigurationError:
    place = ""
    trace = (
        None if isinstance(error, SyntaxError) else error.__traceback__
    )  # a SyntaxError says itself where it is
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
