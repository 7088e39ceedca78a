"""Recover the subscriptions of a broker, and write them as a topology file."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from redrive.duration_text import format_duration
from redrive.errors import ConfigurationError
from redrive.redaction import in_one_line, printable
from redrive.topology import names
from redrive.topology.backoff import Linear
from redrive.topology.delay_policy import delay_of
from redrive.topology.delay_route import delivery_pattern
from redrive.topology.diff import Observed, compare
from redrive.topology.model import Binding, Subscription
from redrive.topology.names import ExchangeFamily
from redrive.topology.policy import MAX_TTL_MS, RetryPolicy
from redrive.topology.tags import HEADER, TagFilter
from redrive.topology.text_filter import TextFilter, filter_for


@dataclass(frozen=True, slots=True)
class ImportedTopology:
    """The subscriptions found on a broker.

    Args:
        subscriptions: those that can be written to a file, by name.
        notes: a sentence for each queue that differs from the file or can't be written to it.
    """

    subscriptions: tuple[Subscription, ...]
    notes: tuple[str, ...]


def recover(observed: Observed) -> ImportedTopology:
    """Recover the subscriptions on a broker. The number of retries can't be seen there, since each
    subscriber keeps it to itself."""
    found: list[Subscription] = []
    notes: list[str] = []
    for queue in sorted(observed.queues):
        if (
            names.retry_queue(queue) not in observed.queues
            and names.failed_queue(queue) not in observed.queues
        ):
            continue
        try:
            subscription = _subscription(queue, observed)
            differences = compare(subscription.topology(), observed)
        except (ConfigurationError, _Unlike) as error:
            notes.append(f"{queue} is left out: {str(error).partition(chr(10))[0]}")
            continue
        found.append(subscription)
        notes += [f"{queue}: {difference}" for difference in differences]
    for main in dict.fromkeys(subscription.exchanges.main for subscription in found):
        for tick in sorted(
            {
                tick
                for name in observed.queues
                if (tick := names.tick_of_level(main, name)) is not None
            }
        ):
            ticks, keys = (
                ("", "backoff")
                if tick == names.TICK
                else (f" with ticks of {format_duration(tick)}", "backoff and the exchange's tick")
            )
            notes.append(
                f"{main} has a delay ladder{ticks}; the broker does not know which "
                f"subscription's backoff needs it: set {keys} there"
            )
    return ImportedTopology(tuple(found), tuple(notes))


class _Unlike(Exception):
    """A queue that does not look like a subscription of redrive."""


def _subscription(queue: str, observed: Observed) -> Subscription:
    arguments = observed.queues[queue]
    if "x-delayed-retry-type" in arguments:
        return _held_back(queue, observed)
    retry = observed.queues.get(names.retry_queue(queue))
    if retry is None:
        raise _Unlike("it has no retry queue")
    family = _family(queue, arguments, observed)
    delay = retry.get("x-message-ttl")
    if not isinstance(delay, int):
        raise _Unlike(f"{names.retry_queue(queue)} has no x-message-ttl")
    if not 0 <= delay <= MAX_TTL_MS:  # not from a real RabbitMQ: a timedelta might not hold it
        raise _Unlike(f"{names.retry_queue(queue)} has the x-message-ttl {delay}")
    kind = arguments.get("x-queue-type")
    if kind not in ("quorum", "classic"):
        raise _Unlike(f"it is a queue of type {kind}")
    filter_ = _filter(queue, family.main, observed)
    shared = (
        "x-dead-letter-exchange" not in arguments
        and retry.get("x-dead-letter-exchange") == family.main
    )
    return Subscription(
        queue,
        _patterns(queue, family, filter_, observed),
        family,
        RetryPolicy(delay=timedelta(milliseconds=delay)),
        "quorum" if kind == "quorum" else "classic",
        "republish" if shared else "dead-letter",
        _tags(filter_, queue, observed) if filter_ else None,
        ordered=arguments.get("x-single-active-consumer") is True,
        max_failed=_max_failed(observed.queues.get(names.failed_queue(queue), {})),
        when_given_up="park" if names.parked_stream(queue) in observed.queues else "continue",
        failed_queues=_failed_queues(queue, observed),
        where=_where(filter_, queue, observed) if filter_ else None,
    )


def _held_back(queue: str, observed: Observed) -> Subscription:
    """Recover a subscription whose failed messages the broker itself holds back."""
    arguments = observed.queues[queue]
    least, most = (arguments.get(f"x-delayed-retry-{end}") for end in ("min", "max"))
    by_policy = delay_of(queue, observed.policies) if least is most is None else None
    if by_policy is not None:
        least, most = by_policy.least, by_policy.most
    if not isinstance(least, int) or not isinstance(most, int) or not 0 < least <= most:
        raise _Unlike(f"it holds messages back from {least} to {most} ms")
    if most > MAX_TTL_MS:
        raise _Unlike(f"it holds messages back for up to {most} ms")
    family = _family_without_retries(queue, observed)
    filter_ = _filter(queue, family.main, observed)
    first, cap = timedelta(milliseconds=least), timedelta(milliseconds=most)
    return Subscription(
        queue,
        _patterns(queue, family, filter_, observed),
        family,
        RetryPolicy(delay=first, backoff=None if first == cap else Linear(first, cap)),
        retry_via="broker",
        tags=_tags(filter_, queue, observed) if filter_ else None,
        where=_where(filter_, queue, observed) if filter_ else None,
        max_failed=_max_failed(observed.queues.get(names.failed_queue(queue), {})),
        delay_by="argument" if by_policy is None else "policy",
        failed_queues=_failed_queues(queue, observed),
    )


def _patterns(
    queue: str, family: ExchangeFamily, filter_: str | None, observed: Observed
) -> list[str]:
    """Return the patterns that a queue subscribes to, sorted."""
    keys = _keys(family.main, filter_ or queue, observed) - {queue}
    if delivery_pattern("p", queue) in _keys(family.deliver, filter_ or queue, observed):
        # Every queue is bound to the main exchange by its name, but only a queue that subscribes to
        # its own name is also bound to delayed messages with that key.
        keys |= {queue}
    return sorted(keys)


def _max_failed(arguments: Mapping[str, object]) -> int | None:
    """Return how many messages a failed queue accepts; None if it has no limit."""
    most = arguments.get("x-max-length")
    return (
        most if isinstance(most, int) and arguments.get("x-overflow") == "reject-publish" else None
    )


def _keys(source: str, destination: str, observed: Observed) -> frozenset[str]:
    """Return the patterns that bind a queue or a tag filter to an exchange."""
    return frozenset(
        binding.routing_key
        for binding in observed.bindings
        if binding.source == source and binding.destination == destination
    )


def _filter(queue: str, main: str, observed: Observed) -> str | None:
    """Return the tag filter through which a queue gets its messages; None if it gets them directly.

    A filter is ignored if all of its patterns are also bound directly: it is left over from tags
    that were removed.
    """
    filters = sorted(
        {binding.source for binding in observed.bindings if _lets_through(binding, queue)}
    )
    around = _keys(main, queue, observed) - {queue}
    used = [filter_ for filter_ in filters if _keys(main, filter_, observed) - around]
    if not used and not around:
        used = filters
    if len(used) > 1:
        raise _Unlike(f"it has several tag filters: {', '.join(used)}")
    if used and around:
        raise _Unlike(
            f"it gets some messages through the tag filter {used[0]} and others around it: "
            f"{', '.join(sorted(around))}"
        )
    return used[0] if used else None


def _lets_through(binding: Binding, queue: str) -> bool:
    """Return whether a binding leads from a tag filter to its queue."""
    return (
        binding.destination == queue
        and binding.to == "queue"
        and names.queue_of_filter(binding.source) == queue
    )


def _failed_queues(queue: str, observed: Observed) -> tuple[str, ...]:
    """Return the kinds of errors that there are failed queues for."""
    beginning = names.failed_queue(queue) + "."
    return tuple(
        sorted(
            name.removeprefix(beginning)
            for name in observed.queues
            if names.queue_of_failed_kind(name) == queue
        )
    )


def _where(filter_: str, queue: str, observed: Observed) -> TextFilter | None:
    """Return the headers that each binding of a filter matches, besides tags, as a filter."""
    found = {
        (name, value)
        for binding in observed.bindings
        if binding.source == filter_ and binding.destination == queue
        for name, value in binding.arguments
        if name != "x-match" and not name.startswith(HEADER) and isinstance(value, str)
    }
    return filter_for(sorted(found))


def _tags(filter_: str, queue: str, observed: Observed) -> TagFilter | None:
    """Return the tags that a filter lets through, from the headers that its bindings match."""
    terms = [
        " && ".join(
            sorted(
                name.removeprefix(HEADER)
                for name, _ in binding.arguments
                if name.startswith(HEADER)
            )
        )
        for binding in observed.bindings
        if binding.source == filter_ and binding.destination == queue
    ]
    expression = " || ".join(sorted(filter(None, terms)))
    return TagFilter(expression) if expression else None


def _family(queue: str, arguments: Mapping[str, object], observed: Observed) -> ExchangeFamily:
    """Find the exchange family from the exchanges of the queue's retry and failed queues."""
    retry = _only_source(names.retry_queue(queue), queue, observed) or arguments.get(
        "x-dead-letter-exchange"
    )
    failed = _only_source(names.failed_queue(queue), queue, observed)
    if not isinstance(retry, str) or not retry or failed is None:
        raise _Unlike("its retry queue or its failed queue is not bound to one exchange")
    sources = {binding.source for binding in observed.bindings if binding.destination == queue}
    mains = [
        main
        for main in sources
        if retry.startswith(main) and failed.startswith(main) and main not in (retry, failed)
    ]
    if not mains:
        raise _Unlike(f"no exchange it is bound to belongs with {retry} and {failed}")
    main = max(mains, key=len)
    return ExchangeFamily(main, retry.removeprefix(main), failed.removeprefix(main))


def _family_without_retries(queue: str, observed: Observed) -> ExchangeFamily:
    """Find the exchange family of a queue without a retry exchange, whose name can't be seen on the
    broker."""
    failed = _only_source(names.failed_queue(queue), queue, observed)
    mains = {
        binding.source
        for binding in observed.bindings
        if failed and binding.destination == queue and failed.startswith(binding.source)
    } - {failed}
    if failed is None or not mains:
        raise _Unlike("its failed queue's exchange belongs to no exchange that it is bound to")
    main = max(mains, key=len)
    return ExchangeFamily(main, failed_suffix=failed.removeprefix(main))


def _only_source(destination: str, key: str, observed: Observed) -> str | None:
    """Return the exchange that routes messages with the key `key` to `destination`; None unless
    there is exactly one."""
    sources = [
        binding.source
        for binding in observed.bindings
        if binding.destination == destination and binding.routing_key == key
    ]
    return sources[0] if len(sources) == 1 else None


def file_of(recovered: ImportedTopology) -> str:
    """Return the topology file, in YAML, that declares these subscriptions."""
    lines = [
        (
            "# The broker does not know how many retries each subscriber allows. "
            "Set max_retries where it is not 3."
        )
    ]
    lines += [f"# {in_one_line(note)}" for note in recovered.notes]
    lines.append("subscriptions:" if recovered.subscriptions else "subscriptions: {}")
    for subscription in recovered.subscriptions:
        lines.append(f"  {_quoted(subscription.queue)}:")
        lines += [f"    {name}: {value}" for name, value in _settings(subscription)]
    return "\n".join(lines) + "\n"


def _settings(subscription: Subscription) -> Iterable[tuple[str, str]]:
    usual = Subscription(subscription.queue)
    family = subscription.exchanges
    yield "routing_keys", f"[{', '.join(map(_quoted, subscription.routing_keys))}]"
    if subscription.tags is not None:
        yield "tags", _quoted(subscription.tags.expression)
    if subscription.where is not None:
        yield "where", _quoted(subscription.where.expression)
    yield "retry", f"{{delay: {format_duration(subscription.retry.delay)}{_growing(subscription)}}}"
    if family == ExchangeFamily(family.main) and family != usual.exchanges:
        yield "exchange", _quoted(family.main)
    elif family != usual.exchanges:
        parts = {
            "main": family.main,
            "retry_suffix": family.retry_suffix,
            "failed_suffix": family.failed_suffix,
        }
        yield (
            "exchange",
            f"{{{', '.join(f'{name}: {_quoted(value)}' for name, value in parts.items())}}}",
        )
    for name in ("queue_type", "retry_via", "delay_by"):
        if getattr(subscription, name) != getattr(usual, name):
            yield name, getattr(subscription, name)
    if subscription.ordered:
        yield "ordered", "true"
    if subscription.parks:
        yield "when_given_up", subscription.when_given_up
    if subscription.failed_queues:
        yield "failed_queues", f"[{', '.join(map(_quoted, subscription.failed_queues))}]"
    if subscription.max_failed is not None:
        yield "max_failed", str(subscription.max_failed)


def _growing(subscription: Subscription) -> str:
    """Return the growth of the broker's delays, as a further setting of the retry policy."""
    backoff = subscription.retry.backoff
    if not isinstance(backoff, Linear):
        return ""
    first, cap = format_duration(backoff.first), format_duration(backoff.cap)
    return f", backoff: {{growth: linear, first: {first}, cap: {cap}}}"


def _quoted(text: str) -> str:
    """Quote a text for YAML, which accepts JSON strings, and the escapes of `printable` for
    characters that YAML does not allow."""
    return printable(json.dumps(text, ensure_ascii=False))
