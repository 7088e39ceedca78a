"""Which errors mean that something a subscription's handlers need is down, rather than that a
message is bad."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from redrive.errors import ConfigurationError, DependencyDown, GiveUp, InvalidMessage
from redrive.topology.backoff import Backoff, Exponential, backoff_of
from redrive.topology.durations import Duration

LONGEST_PROBE_DELAY = timedelta(minutes=25)
"""A worker holds the message that it will try next. The broker's consumer timeout is 30 minutes."""

_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True, init=False)
class Outage:
    """Errors that mean that something the handlers need is down, and how often to try whether it is
    back.

    The first attempt that fails so stops the subscription in this process. From then on, only one
    message at a time is tried, with the delays of `probe` in between. What else fails so meanwhile
    goes back to its queue uncounted. Once a message no longer fails so, handlers run 1, 2, 4, … at
    a time, up to `concurrency`.

    Args:
        on: the exception classes, or a function of the exception that returns whether it means an
            outage. Empty if only handlers say so, by raising `DependencyDown`.
        probe: how long to wait before each try: one delay for all of them, a list of delays,
            `Exponential` or `Linear`; at most 25 minutes.
        name: what is down, for logs and metrics, and for `DependencyDown(dependency=…)`; by default
            the names of the exception classes.

    Raises:
        ConfigurationError: an argument is invalid.
    """

    on: tuple[type[BaseException], ...] | Callable[[BaseException], bool]
    probe: Backoff
    name: str

    def __init__(
        self,
        on: type[BaseException]
        | Sequence[type[BaseException]]
        | Callable[[BaseException], bool] = (),
        probe: Backoff | Duration | Sequence[Duration] = Exponential("1s", cap="30s", jitter=0.2),  # noqa: B008 - it is frozen
        name: str = "",
    ) -> None:
        set_ = object.__setattr__
        set_(self, "on", _checked_on(on))
        set_(self, "probe", backoff_of(probe))
        if not isinstance(name, str) or len(name) > _LONGEST_NAME:
            raise ConfigurationError(
                f"the name of an outage is {name!r:.200}",
                f"Give a text of at most {_LONGEST_NAME} characters.",
            )
        set_(self, "name", name or _name_of(self.on))
        longest = self.probe.longest(10_000)
        if longest > LONGEST_PROBE_DELAY:
            raise ConfigurationError(
                f"the outage {self.name!r} tries again after up to {longest}",
                f"Give a probe of at most {LONGEST_PROBE_DELAY}.",
            )

    def matches(self, error: BaseException) -> bool:
        """Return whether an error means this outage."""
        return isinstance(error, self.on) if isinstance(self.on, tuple) else bool(self.on(error))


def outages_of(value: Outage | Sequence[Outage] | None) -> tuple[Outage, ...]:
    """Check the `outage` of a subscriber.

    Raises:
        ConfigurationError: it is neither an Outage nor several, or two have the same name.
    """
    given = (value,) if isinstance(value, Outage) else () if value is None else value
    if not isinstance(given, tuple | list) or not all(isinstance(one, Outage) for one in given):
        raise ConfigurationError(
            f"outage is {value!r:.200}", "Give Outage(on=…), or a list of them."
        )
    names = [one.name for one in given]
    if len(set(names)) < len(names):
        raise ConfigurationError(
            f"two outages have the same name: {', '.join(names)}", "Give each a name=… of its own."
        )
    return tuple(given)


def outage_of(errors: Sequence[BaseException], outages: Sequence[Outage]) -> Outage | None:
    """Return the outage that failed an attempt; None if its message did, as one that can't be read
    or was given up has."""
    if any(isinstance(error, GiveUp | InvalidMessage) for error in errors):
        return None
    for error in errors:
        if isinstance(error, DependencyDown):
            return _named(error.dependency, outages)
        for outage in outages:
            if outage.matches(error):
                return outage
    return None


def _named(name: str, outages: Sequence[Outage]) -> Outage:
    known = next((one for one in outages if one.name == name), None)
    if known is not None:
        return known
    probe = outages[0].probe if outages else _OF_A_HANDLER.probe
    return Outage(probe=probe, name=name[:_LONGEST_NAME] or _OF_A_HANDLER.name)


def _checked_on(
    on: type[BaseException] | Sequence[type[BaseException]] | Callable[[BaseException], bool],
) -> tuple[type[BaseException], ...] | Callable[[BaseException], bool]:
    if isinstance(on, type):
        on = (on,)
    if isinstance(on, tuple | list):
        for kind in on:
            if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                raise ConfigurationError(
                    f"an outage is on {kind!r:.200}, which is not an exception class",
                    "Give exception classes, or a function of the exception.",
                )
            if issubclass(kind, BaseExceptionGroup):
                raise ConfigurationError(
                    f"an outage is on {kind.__name__}, and groups are split into their exceptions",
                    "Give the exceptions in it.",
                )
        return tuple(on)
    if callable(on):
        return on
    raise ConfigurationError(
        f"an outage is on {on!r:.200}", "Give exception classes, or a function of the exception."
    )


def _name_of(on: tuple[type[BaseException], ...] | Callable[[BaseException], bool]) -> str:
    if not isinstance(on, tuple):
        return str(getattr(on, "__name__", type(on).__name__))[:_LONGEST_NAME]
    return ", ".join(kind.__name__ for kind in on)[:_LONGEST_NAME] or "a dependency"


_OF_A_HANDLER = Outage(name="a dependency")
"""What a handler's `DependencyDown` means if it names nothing that is known."""
