"""Collect facts over the management API: all of a virtual host for a diagnosis, or its routes."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from redrive.errors import BrokerUnavailable, ConfigurationError, PermissionDenied
from redrive.pubsub.admin.amqp_survey import facts_over_amqp, merged
from redrive.pubsub.admin.management_api import ManagementAPI, table
from redrive.pubsub.blocking.connection import Connector, default_name
from redrive.pubsub.blocking.declarer import declaring
from redrive.pubsub.url import is_ours, tags_of
from redrive.redaction import redact
from redrive.topology import names
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.dead_letter_routes import Routes
from redrive.topology.delay_policy import Policy, holding
from redrive.topology.doctor.diagnosis import Question, diagnose
from redrive.topology.doctor.facts import Access, Consumers, Facts, QueueFacts
from redrive.topology.doctor.finding import Finding
from redrive.topology.names import ExchangeFamily, check_queue_name


@dataclass(frozen=True, slots=True)
class BrokerCheck:
    """The result of a check.

    Args:
        findings: the problems found.
        subscriptions: number of subscriptions checked.
    """

    findings: list[Finding]
    subscriptions: int


def checked_up(url: str, management_url: str | None, family: ExchangeFamily) -> BrokerCheck:
    """Check all subscriptions of a virtual host.

    Stuck dead-lettering and the user's permissions take longer to find out; `redrive doctor` checks
    them.
    """
    connector = Connector(url, default_name("doctor"))
    with declaring(connector) as declarer:
        with ManagementAPI(connector.url, management_url) as management:
            virtual_host = connector.url.virtual_host
            listed = facts_over_management(management, declarer.version, virtual_host)
        subscriptions = [name for name in names.main_queues(listed.queues) if _is_name(name)]
        questions = [Question(name, family) for name in subscriptions]
        places = [place for question in questions for place in question.places]
        exchanges = (family.main, family.retry, family.failed)
        seen = facts_over_amqp(declarer, virtual_host, exchanges, places)
    return BrokerCheck(diagnose(merged(seen, listed), questions), len(subscriptions))


def _is_name(name: str) -> bool:
    try:
        check_queue_name(name)
    except ConfigurationError:
        return False
    return True


_QUEUE_COLUMNS = (
    "name,type,arguments,policy,operator_policy,effective_policy_definition,members,messages,"
    "message_bytes,delayed_retry"
)
_EFFECTIVE = "effective_policy_definition"
_EXCHANGE_COLUMNS = "name,type,arguments,policy"
_NOT_TOLD = (BrokerUnavailable, PermissionDenied)
"""Raised if the API hides the data from this user, or has none because statistics are off."""
_ALARMS = {"mem_alarm": "memory", "disk_free_alarm": "disk space"}


def facts_over_management(
    management: ManagementAPI, version: BrokerVersion, virtual_host: str
) -> Facts:
    """Collect everything that the management API reports."""
    listed = _with_policies(
        management, management.listed(f"queues/{{vhost}}?columns={_QUEUE_COLUMNS}")
    )
    consumers, unknown = _consumers(management)
    nodes = _nodes(management)
    queues = [_queue(queue, consumers) for queue in listed]
    exchanges = management.listed(f"exchanges/{{vhost}}?columns={_EXCHANGE_COLUMNS}")
    return Facts(
        version,
        virtual_host,
        exchanges={str(one["name"]): str(one["type"]) for one in exchanges},
        queues={queue.name: queue for queue in queues},
        bindings=frozenset(management.bindings()),
        complete=True,
        nodes=None if nodes is None else len(nodes),
        access=_access(management),
        alarms={
            str(node["name"]): " and ".join(short_of)
            for node in nodes or ()
            if (short_of := [what for name, what in _ALARMS.items() if node.get(name) is True])
        },
        alternates=_alternates(management, exchanges),
        unknown=unknown,
    )


def routes_over_management(management: ManagementAPI) -> Routes:
    """Return the queues, exchanges and bindings of the virtual host. The settings that policies put
    on queues are up to five seconds old."""
    queues = _with_policies(
        management, management.listed(f"queues/{{vhost}}?columns={_QUEUE_COLUMNS},consumers")
    )
    exchanges = management.listed(f"exchanges/{{vhost}}?columns={_EXCHANGE_COLUMNS}")
    for queue in queues:
        if _arguments(queue) is None:
            raise BrokerUnavailable(
                redact(management.address),
                f"its management API does not show the arguments of queue {str(queue['name'])!r}",
                "Ask as a user with the tag 'monitoring' or 'management'.",
            )
    return Routes(
        {str(one["name"]): _queue(one, {str(one["name"]): _consumers_in(one)}) for one in queues},
        {str(one["name"]): str(one["type"]) for one in exchanges},
        tuple(management.bindings()),
        _alternates(management, exchanges),
    )


def _with_policies(
    management: ManagementAPI, queues: list[dict[str, object]]
) -> list[dict[str, object]]:
    """Return the queues, each with the settings from its policies.

    Without statistics the API names a queue's policy but not its operator policy, and the settings
    of neither, so their definitions are looked up. Of two numbers the smaller one applies. Source:
    measured on RabbitMQ 3.10.8 with `management.disable_stats`; rabbit_policy.erl.
    """
    silent = [queue for queue in queues if queue.get(_EFFECTIVE) is None]
    if silent:
        own = {policy.name: policy for policy in management.policies()}
        operators = management.policies("operator-policies")
        for queue in silent:
            policy = own.get(str(queue.get("policy")))
            queue[_EFFECTIVE] = _merged(policy, _holding(operators, str(queue["name"])))
    return queues


def _holding(policies: Iterable[Policy], queue: str) -> Policy | None:
    try:
        return holding(policies, queue)
    except ConfigurationError:  # it can't be determined here which one applies
        return None


def _merged(policy: Policy | None, operators: Policy | None) -> dict[str, object]:
    merged = {} if policy is None else dict(policy.definition)
    for name, value in ({} if operators is None else operators.definition).items():
        own = merged.get(name)
        is_less = isinstance(own, int) and isinstance(value, int) and own < value
        merged[name] = own if is_less else value
    return merged


def _consumers_in(queue: Mapping[str, object]) -> Consumers:
    count = queue.get("consumers")
    return Consumers(count if isinstance(count, int) else 0)


def _alternates(
    management: ManagementAPI, exchanges: Iterable[Mapping[str, object]]
) -> dict[str, str]:
    """Return the alternate exchange of each exchange that has one.

    The API names an exchange's policy, but not what the policy sets. An argument takes precedence.
    Source: measured on RabbitMQ 3.10.8, 4.0.5 and 4.3.6.
    """
    known = list(exchanges)
    policies = (
        {
            str(policy["name"]): table(policy.get("definition"))
            for policy in management.listed("policies/{vhost}")
        }
        if any(exchange.get("policy") for exchange in known)
        else {}
    )
    found = {
        str(exchange["name"]): table(exchange.get("arguments")).get("alternate-exchange")
        or policies.get(str(exchange.get("policy")), {}).get("alternate-exchange")
        for exchange in known
    }
    return {name: other for name, other in found.items() if isinstance(other, str)}


def _queue(queue: Mapping[str, object], consumers: Mapping[str, Consumers] | None) -> QueueFacts:
    name = str(queue["name"])
    return QueueFacts(
        name,
        _arguments(queue),
        table(queue.get(_EFFECTIVE)),
        _name(queue.get("policy")),
        _name(queue.get("operator_policy")),
        Consumers() if consumers is None else consumers.get(name, Consumers(0, 0)),
        len(members) if isinstance(members := queue.get("members"), list) else None,
        _average(queue.get("message_bytes"), queue.get("messages")),
        holding_back=_holding_back(queue.get("delayed_retry")),
    )


def _arguments(queue: Mapping[str, object]) -> Mapping[str, object] | None:
    """Return a queue's arguments, including its type; None if they are not reported."""
    if "arguments" not in queue or "type" not in queue:
        return None
    return {"x-queue-type": queue["type"], **table(queue["arguments"])}


def _holding_back(said: object) -> bool | None:
    """Return whether a quorum queue really holds messages back, whatever its arguments ask for.

    Source: RabbitMQ 4.3.6 reports `disabled`, or `failed (min: 500ms, max: 1200ms)`. Older brokers
    report nothing, nor does a queue younger than about five seconds.
    """
    return said != "disabled" if isinstance(said, str) else None


def _average(sum_: object, count: object) -> int | None:
    """Return the average if both values are numbers; a new queue lacks them."""
    known = isinstance(sum_, int) and isinstance(count, int) and count > 0
    return sum_ // count if known else None  # type: ignore[operator]


def _name(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _consumers(management: ManagementAPI) -> tuple[dict[str, Consumers] | None, str]:
    """Return the consumers of each queue that has any; or None, and why they are not known."""
    properties = _connections(management)
    found: dict[str, list[Mapping[str, object]]] = defaultdict(list)
    try:
        listed = management.listed("consumers/{vhost}")
    except BrokerUnavailable as error:
        return None, f"the consumers are not known: {str(error).partition(chr(10))[0]}"
    for consumer in listed:
        found[str(table(consumer.get("queue")).get("name"))].append(consumer)
    summaries = {queue: _summary(queue, some, properties) for queue, some in found.items()}
    return summaries, ""


def _summary(
    queue: str,
    consumers: list[Mapping[str, object]],
    properties: Mapping[str, Mapping[str, object]],
) -> Consumers:
    names = [
        str(table(consumer.get("channel_details")).get("connection_name")) for consumer in consumers
    ]
    seen = [properties[name] for name in names if name in properties]
    return Consumers(
        len(consumers),
        sum(not is_ours(one) for one in seen) if len(seen) == len(names) else None,
        _shortest(consumer.get("consumer_timeout") for consumer in consumers),
        frozenset(tags_of(one, queue) for one in seen if is_ours(one)),
    )


def _shortest(milliseconds: Iterable[object]) -> timedelta | None:
    known = [time for time in milliseconds if isinstance(time, int)]
    return timedelta(milliseconds=min(known)) if known else None


def _connections(management: ManagementAPI) -> dict[str, Mapping[str, object]]:
    """Return the client properties of each connection that this user may see."""
    try:
        connections = management.listed("vhosts/{vhost}/connections?columns=name,client_properties")
    except _NOT_TOLD:
        return {}
    return {
        str(connection["name"]): table(connection.get("client_properties"))
        for connection in connections
    }


def _nodes(management: ManagementAPI) -> list[dict[str, object]] | None:
    try:
        return management.listed(f"nodes?columns=name,{','.join(_ALARMS)}")
    except _NOT_TOLD:
        return None


def _access(management: ManagementAPI) -> tuple[Access, ...] | None:
    """Return each user's write and read permissions; only administrators can see them."""
    try:
        users = {
            str(user["name"]): user.get("tags")
            for user in management.listed("users?columns=name,tags")
        }
        permissions = management.listed("vhosts/{vhost}/permissions")
        topics = management.listed("vhosts/{vhost}/topic-permissions")
    except _NOT_TOLD:
        return None
    return tuple(
        Access(
            name := str(permission["user"]),
            "administrator" in _tags(users.get(name)),
            str(permission["write"]),
            _keys_of(topics, name, "write"),
            str(permission["read"]),
            _keys_of(topics, name, "read"),
        )
        for permission in permissions
    )


def _keys_of(topics: Iterable[Mapping[str, object]], user: str, verb: str) -> dict[str, str]:
    return {str(one["exchange"]): str(one[verb]) for one in topics if one["user"] == user}


def _tags(value: object) -> list[str]:
    """Return a user's tags; before RabbitMQ 3.9 they came as one string."""
    return (
        value.split(",")
        if isinstance(value, str)
        else [str(tag) for tag in value]
        if isinstance(value, list)
        else []
    )
