"""Schema of the topology file that a team maintains, and its conversion to subscriptions.

    defaults:
      exchange: master
      retry: {delay: 30s}
    subscriptions:
      ucenter@user:
        routing_keys: [user.*]
        retry: {delay: 5m, max_retries: 5}

`redrive.pubsub.admin.topology_file` reads the YAML and finds the line of a mistake.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    Tag,
    ValidationError,
    WithJsonSchema,
)

from redrive.duration_text import format_duration
from redrive.errors import ConfigurationError
from redrive.topology import names
from redrive.topology.backoff import Backoff, Exponential, Linear
from redrive.topology.delay_route import LEVELS
from redrive.topology.durations import duration_of
from redrive.topology.migration import TRANSIT_SUFFIX
from redrive.topology.model import (
    DelayBy,
    QueueType,
    RetryVia,
    Subscription,
    Topology,
    WhenGivenUp,
)
from redrive.topology.names import ExchangeFamily
from redrive.topology.policy import RetryPolicy
from redrive.topology.tags import TagFilter
from redrive.topology.text_filter import TextFilter


def clashes(subscriptions: Sequence[Subscription]) -> Iterator[tuple[Subscription, str]]:
    """Yield the subscriptions whose queue or exchange name is reserved, and what is wrong with
    it."""
    ladders = {
        name: family.main
        for family in {subscription.exchanges for subscription in subscriptions}
        for name in _ladder(family)
    }
    migrations = {
        queue + TRANSIT_SUFFIX: queue
        for subscription in subscriptions
        for queue in _queues(subscription)
    }
    delivering = {
        subscription.exchanges.deliver: subscription.exchanges.main
        for subscription in subscriptions
    }
    for subscription in subscriptions:
        queue, exchange = subscription.queue, subscription.exchanges.main
        if queue in ladders:
            yield (
                subscription,
                (
                    f"the queue name {queue!r} belongs to the delay ladder of exchange "
                    f"{ladders[queue]!r}"
                ),
            )
        if queue in migrations:
            yield (
                subscription,
                (
                    f"the queue name {queue!r} is reserved: {migrations[queue]!r} uses it "
                    "while it is migrated"
                ),
            )
        if exchange in ladders | delivering:
            yield (
                subscription,
                (
                    f"the exchange name {exchange!r} belongs to the delay ladder of exchange "
                    f"{(ladders | delivering)[exchange]!r}"
                ),
            )


def _ladder(family: ExchangeFamily) -> Iterator[str]:
    """Yield the names that are both an exchange and a queue."""
    yield family.unrouted
    for number in range(LEVELS):
        yield names.level(family.main, number, family.tick)


def _queues(subscription: Subscription) -> tuple[str, str, str]:
    return subscription.queue, subscription.retry_queue, subscription.failed_queue


_T = TypeVar("_T")
Location = tuple[str | int, ...]
"""A place in a file: the keys and positions that lead to it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A mistake in a topology file.

    Args:
        location: the keys and positions that lead to it.
        problem: what is wrong there.
        remedy: what to do about it.
    """

    location: Location
    problem: str
    remedy: str


class InvalidSpec(ConfigurationError):
    """A topology file that is invalid."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        first = self.problems[0]
        super().__init__(f"{'.'.join(map(str, first.location))}: {first.problem}", first.remedy)


def _as_ours(check: Callable[[_T], object]) -> Callable[[_T], _T]:
    """Wrap a check of redrive for pydantic, keeping its problem and remedy and adding the
    location."""

    def checked(value: _T) -> _T:
        try:
            check(value)
        except ConfigurationError as error:
            raise _Rejected(error) from error
        return value

    return checked


class _Rejected(ValueError):
    """A ConfigurationError on its way through pydantic."""

    def __init__(self, error: ConfigurationError) -> None:
        super().__init__(error.problem)
        self.problem = error.problem
        self.remedy = error.remedy


def _read_duration(value: object) -> object:
    if isinstance(value, timedelta):
        return value
    try:
        if not isinstance(value, str):
            raise ConfigurationError(
                f"the duration is {value!r}", "Give a number with a unit: 500ms, 30s, 5m, 1h30m."
            )
        return duration_of(value)
    except ConfigurationError as error:
        raise _Rejected(error) from error


def _read_exchange(value: object) -> object:
    return {"main": value} if isinstance(value, str) else value


Duration = Annotated[
    timedelta,
    BeforeValidator(_read_duration),
    PlainSerializer(format_duration),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$",
            "examples": ["500ms", "30s", "1h30m"],
        }
    ),
]
RetryDelay = Annotated[Duration, AfterValidator(_as_ours(lambda delay: RetryPolicy(delay=delay)))]
Pattern = Annotated[str, AfterValidator(_as_ours(names.check_routing_key))]
Tags = Annotated[str, AfterValidator(_as_ours(TagFilter))]
FailedKind = Annotated[str, AfterValidator(_as_ours(names.check_failed_kind))]
Where = Annotated[str, AfterValidator(_as_ours(TextFilter))]
QueueName = Annotated[str, AfterValidator(_as_ours(names.check_queue_name))]


class _Spec(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class ExchangeSpec(_Spec):
    """The exchange family; a name alone sets `main`."""

    main: str = "master"
    retry_suffix: str = ".retry"
    failed_suffix: str = ".failed"
    tick: Duration = Field(
        default=names.TICK,
        description="The unit of delayed messages.",
        json_schema_extra={"default": "1s"},
    )


Exchange = Annotated[
    ExchangeSpec,
    BeforeValidator(_read_exchange),
    WithJsonSchema({"anyOf": [{"type": "string"}, ExchangeSpec.model_json_schema()]}),
]


class BackoffSpec(_Spec):
    """Delays that grow from retry to retry."""

    growth: Literal["exponential", "linear"] = Field(
        default="exponential",
        description="How delays grow: each retry waits factor times as long as the one before, "
        "or the n-th retry waits n times as long as the first.",
    )
    first: Duration = Field(description="The first retry's delay.")
    factor: float = Field(
        default=2.0,
        ge=1,
        strict=False,
        description="The factor by which each delay is longer than the one before.",
    )
    cap: Duration = Field(
        default=timedelta(hours=1),
        description="The longest delay.",
        json_schema_extra={"default": "1h"},
    )
    jitter: float = Field(
        default=0.0, ge=0, le=1, strict=False, description="The largest share taken off at random."
    )

    def built(self) -> Backoff:
        """Return the backoff."""
        if self.growth == "linear":
            if "factor" in self.model_fields_set:
                raise ConfigurationError(
                    "the backoff grows linearly and has a factor",
                    "Leave it out: the n-th retry waits n times as long as the first.",
                )
            return Linear(self.first, self.cap, self.jitter)
        return Exponential(self.first, self.factor, self.cap, self.jitter)


def _form_of_backoff(value: object) -> str:
    """Return the form of a backoff, growing delays or a list, so that an error message is about the
    form that the user chose."""
    return "[growing]" if isinstance(value, Mapping | BackoffSpec) else "[list]"


BackoffChoice = Annotated[
    Annotated[BackoffSpec, Tag("[growing]")]
    | Annotated[tuple[Duration, ...], Field(strict=False, min_length=1), Tag("[list]")],
    Discriminator(_form_of_backoff),
    WithJsonSchema(
        {
            "anyOf": [
                {
                    "type": "array",
                    "minItems": 1,
                    "items": {"type": "string"},
                    "examples": [["10s", "30s", "1m"]],
                },
                BackoffSpec.model_json_schema(),
            ]
        }
    ),
]


class RetrySpec(_Spec):
    """The retry policy."""

    max_retries: int | None = Field(
        default=None,
        ge=0,
        description="Retries after the first attempt; 3, or as many as the backoff lists. The "
        "broker does not store this: "
        "each subscriber has its own.",
    )
    delay: RetryDelay = Field(
        default=timedelta(seconds=30),
        description="How long a failed message waits before it is tried again.",
        json_schema_extra={"default": "30s"},
    )
    max_crashes: int = Field(
        default=5,
        ge=1,
        description="How often a message may take its process down before it is set aside.",
    )
    backoff: BackoffChoice | None = Field(
        default=None,
        description="Delays that differ from retry to retry: a list of them, or how they grow. "
        "They need the delay ladder.",
    )
    max_age: Duration | None = Field(
        default=None, description="A message published longer ago is not tried again."
    )


class SubscriptionDefaults(_Spec):
    """Settings of every subscription that does not override them."""

    exchange: Exchange = Field(
        default_factory=ExchangeSpec, description="The main exchange, or the whole family."
    )
    queue_type: QueueType = Field(
        default="quorum", description="The type of the main, the retry and the failed queue."
    )
    retry_via: RetryVia = Field(
        default="dead-letter",
        description="How a failed attempt comes back: through the retry queue (dead-letter, "
        "republish), or held back in the main queue by RabbitMQ itself, from 4.3 on (broker).",
    )
    delay_by: DelayBy = Field(
        default="argument",
        description="What sets the delay of messages that RabbitMQ holds back: an argument of the "
        "queue, or a policy, which `topology apply` changes while the queue is used.",
    )
    max_failed: int | None = Field(
        default=None,
        ge=1,
        description="How many messages the failed queue accepts; when it is full, new failures "
        "stay in the main queue.",
    )
    retry: RetrySpec = Field(default_factory=RetrySpec, description="The retry budget.")


class SubscriptionSpec(SubscriptionDefaults):
    """A subscription; its queue's name is its key."""

    ordered: bool = Field(
        default=False,
        description="One consumer at a time, one message at a time; a failed one is retried in "
        "its place.",
    )
    when_given_up: WhenGivenUp = Field(
        default="continue",
        description="What an ordered queue does with later messages of a key once one of them is "
        "set aside: continue, or park them behind it.",
    )
    failed_queues: tuple[FailedKind, ...] = Field(
        default=(),
        strict=False,
        description="Further failed queues, for kinds of errors that workers have rules for: "
        "`invalid` is QUEUE@failed.invalid.",
    )
    tags: Tags | None = Field(
        default=None, description="The tags it wants: vip || eu. If omitted, all messages."
    )
    where: Where | None = Field(
        default=None,
        description="The filter that messages must match: headers.country = 'DE'. If omitted, all "
        "messages.",
    )
    routing_keys: tuple[Pattern, ...] = Field(
        default=(), strict=False, description="Binding patterns: user.*, order.#."
    )


class TopologySpec(_Spec):
    """A topology file."""

    defaults: SubscriptionDefaults = Field(
        default_factory=SubscriptionDefaults,
        description="Settings of all subscriptions that don't override them.",
    )
    subscriptions: dict[QueueName, SubscriptionSpec] = Field(
        description="Each subscription, by the name of its queue."
    )

    def built(self) -> tuple[Subscription, ...]:
        """Return the subscriptions, in the file's order."""
        problems: list[Problem] = []
        subscriptions: list[Subscription] = []
        for queue, spec in self.subscriptions.items():
            try:
                subscriptions.append(_subscription(queue, self.defaults, spec))
            except ConfigurationError as error:
                problems.append(Problem(("subscriptions", queue), error.problem, error.remedy))
        problems += (
            Problem(("subscriptions", found.queue), problem, "Use another name.")
            for found, problem in clashes(subscriptions)
        )
        if problems:
            raise InvalidSpec(problems)
        return tuple(subscriptions)


def parse(value: object) -> TopologySpec:
    """Validate the content of a topology file."""
    try:
        spec = TopologySpec.model_validate(value)
    except ValidationError as error:
        raise InvalidSpec(
            [_problem(details) for details in error.errors(include_url=False)]
        ) from error
    spec.built()
    return spec


def schema() -> dict[str, object]:
    """Return the JSON Schema of a topology file, for editors."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return head | TopologySpec.model_json_schema() | {"title": "redrive topology"}


def union_of(topologies: Iterable[Topology]) -> Topology:
    """Merge several topologies into one, with each object once."""
    return sum(topologies, Topology((), (), ()))


def _subscription(
    queue: str, defaults: SubscriptionDefaults, spec: SubscriptionSpec
) -> Subscription:
    chosen = _over(defaults, spec, SubscriptionDefaults)
    retry = _over(defaults.retry, spec.retry, RetrySpec)
    if isinstance(retry["backoff"], BackoffSpec):
        retry["backoff"] = retry["backoff"].built()
    if retry["max_retries"] is None:
        del retry["max_retries"]
    exchange = _over(defaults.exchange, spec.exchange, ExchangeSpec)
    return Subscription(
        queue,
        spec.routing_keys,
        ExchangeFamily(**exchange),
        RetryPolicy(**retry),
        chosen["queue_type"],
        chosen["retry_via"],
        TagFilter(spec.tags) if spec.tags is not None else None,
        ordered=spec.ordered,
        max_failed=chosen["max_failed"],
        delay_by=chosen["delay_by"],
        when_given_up=spec.when_given_up,
        failed_queues=spec.failed_queues,
        where=TextFilter(spec.where) if spec.where is not None else None,
    )


def _over(defaults: BaseModel, own: BaseModel, fields: type[BaseModel]) -> dict[str, Any]:
    """Return each field's value: the subscription's own if it is set, otherwise the default."""
    return {
        name: getattr(own if name in own.model_fields_set else defaults, name)
        for name in fields.model_fields
    }


def _problem(details: Any) -> Problem:
    location: Location = tuple(
        part for part in details["loc"] if part not in {"[key]", "[growing]", "[list]"}
    )
    context = details.get("ctx", {})
    match details["type"]:
        case "value_error" if isinstance(rejected := context.get("error"), _Rejected):
            return Problem(location, rejected.problem, rejected.remedy)
        case "extra_forbidden":
            return Problem(
                location,
                f"{location[-1]!r} is not a known key",
                f"Known keys here: {_known_at(location)}.",
            )
        case "missing":
            return Problem(location, f"{location[-1]!r} is missing", "Add it.")
        case "model_type" | "model_attributes_type" | "dict_type":
            return Problem(
                location,
                f"{_shown(details['input'])} is not a mapping",
                "Give keys and values, one per line: `key: value`.",
            )
        case "tuple_type":
            return Problem(
                location, f"{_shown(details['input'])} is not a list", "Give a list: [a, b]."
            )
        case "string_type":
            return Problem(
                location, f"{_shown(details['input'])} is not a text", "Put it into quotes."
            )
        case _:
            return Problem(
                location,
                f"{_shown(details['input'])} is invalid: {_lower(details['msg'])}",
                "See `redrive topology schema`.",
            )


def _known_at(location: Location) -> str:
    """Return the keys that are allowed beside the one at `location`."""
    model: type[BaseModel] = TopologySpec
    for part in location[:-1]:
        match part:
            case "defaults":
                model = SubscriptionDefaults
            case "subscriptions":
                model = SubscriptionSpec
            case "retry":
                model = RetrySpec
            case "exchange":
                model = ExchangeSpec
            case "backoff":
                model = BackoffSpec
    return ", ".join(model.model_fields)


def _shown(value: object) -> str:
    return "an empty value" if value is None else repr(value)


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
