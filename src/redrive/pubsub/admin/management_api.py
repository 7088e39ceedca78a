"""Query the broker's management API for what AMQP can't report: bindings, policies, queue names.

Needs httpx (`pip install redrive[cli]`) and the broker's management plugin.
Source: https://www.rabbitmq.com/docs/management#http-api
"""

import ssl
from collections import deque
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar
from urllib.parse import quote, unquote

from redrive.errors import BrokerUnavailable, ConfigurationError, PermissionDenied
from redrive.pubsub import tls
from redrive.pubsub.lifecycle import BrokerAccess
from redrive.pubsub.url import BrokerURL, Endpoint, check_unambiguous, options_of
from redrive.pubsub.wire_protocol import DOWN, HUNG
from redrive.redaction import in_one_line, redact
from redrive.topology.delay_policy import Policy, holding
from redrive.topology.diff import Observed
from redrive.topology.flow import QueueCount
from redrive.topology.formats import settings_of
from redrive.topology.model import Binding

if TYPE_CHECKING:
    import httpx

_Error = TypeVar("_Error", bound=Exception)

_TIMEOUT = timedelta(seconds=10)
QUICK_TIMEOUT = timedelta(seconds=3)
"""For callers that can do without the answer: a screen then says what it does not know, and a
scrape of metrics, which ends after ten seconds by default, is still answered."""
_PORTS = {False: 15672, True: 15671}

_RATED = (
    "message_stats.publish",
    "message_stats.deliver_get",
    "message_stats.ack",
    "messages_unacknowledged",
)
_COLUMNS = (
    "name",
    "messages_ready",
    "messages_dlx",
    "messages_delayed",
    "arguments",
    "consumers",
    "head_message_timestamp",
    *_RATED,
    *(f"{rated}_details.avg_rate" for rated in _RATED),
)
# The broker samples every five seconds. An average over three samples is steady and still recent.
_COUNTS = (
    f"columns={','.join(_COLUMNS)}&msg_rates_age=15&msg_rates_incr=5&lengths_age=15&lengths_incr=5"
)
_ENABLE = (
    "Enable it (rabbitmq-plugins enable rabbitmq_management), or give its address with "
    "--management-url."
)
_EXAMPLE = (
    "Give one such as http://localhost:15672, or https://localhost:15671/?cacertfile=/etc/ca.pem."
)
_LATE = (
    "Try again when the broker is less busy, or give another address of the API with "
    "--management-url."
)
_BROKEN = "Check the broker's log, and try again."
_NO_CONNECTION = (
    "Check that host and port are right and no firewall is in between, or give its "
    "address with --management-url."
)
_NO_HTTP = (
    "Give the address of the management API with --management-url; it begins with https:// "
    "if the API has a certificate."
)
_TLS = (
    "Check that this port is for https, and the URL's certfile and keyfile if it asks for a "
    "certificate."
)
_WRONG_NAME = "Use a host name that its certificate is valid for: --management-url."
_WRONG_TIMES, _WRONG_NAMES = (9, 10), (62, 64)  # OpenSSL's X509_V_ERR_…


class ConsumerReports(NamedTuple):
    """The consumers of a queue, and what they report by their arguments.

    Args:
        hung: handlers that are still running after their timeout; None if none reports it.
        down: names of what is down, so that they take few messages or none.
        hosts: the addresses that they connect from.
    """

    hung: int | None = None
    down: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()


class ManagementAPI:
    """The management API of a broker."""

    def __init__(
        self,
        url: str | BrokerURL,
        address: str | None = None,
        timeout: timedelta = _TIMEOUT,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        try:
            import httpx
        except ImportError as error:
            raise ConfigurationError(
                "the management API needs httpx, which is not installed",
                "pip install 'redrive[cli]'",
            ) from error
        broker = url if isinstance(url, BrokerURL) else BrokerURL.parse(url)
        self._httpx = httpx
        self._virtual_host = broker.virtual_host
        self._timeout = timeout
        self._hosts = deque([] if address else (one.host for one in broker.endpoints))
        if not address:
            endpoint = Endpoint(self._hosts[0], _PORTS[broker.tls])
            address = f"{'https' if broker.tls else 'http'}://{endpoint}"
        self.address, _, query = address.partition("?")
        check_unambiguous(
            "the management address", self.address.partition("://")[2].partition("/")[2], query
        )
        try:
            place = httpx.URL(self.address)
        except (httpx.InvalidURL, ValueError):
            place = httpx.URL()
        if place.scheme not in ("http", "https") or not place.host:
            raise ConfigurationError(
                "the management address can't be read: it needs http:// or https://, and a host",
                _EXAMPLE,
            )
        own = options_of(query, tls.OPTIONS)
        if own:
            ssl_context = None  # the address has TLS settings of its own
        if place.scheme == "http" and own:
            raise ConfigurationError(
                f"the management address has {', '.join(own)}, and http:// is not encrypted",
                "Begin it with https://.",
            )
        if place.scheme == "http" and broker.tls:
            tls.warn_once(
                f"{redact(self.address)}: requests to the management API are not encrypted, but "
                "the broker's connections are (amqps://)"
            )
        self._username, password = broker.username, broker.password
        if place.username:
            self._username, password = unquote(place.username), unquote(place.password)
        # Kept as httpx's object, whose repr does not show the password.
        self._auth = httpx.BasicAuth(self._username, password) if self._username else None
        self._place = place.copy_with(username=None, password=None)
        self._options = own if ssl_context is not None else dict(broker.tls_options) | own
        self._ssl_context = ssl_context
        if place.scheme == "https":
            tls.warn_of_no_check(redact(self.address), self._options)
        self._client = self._new_client()
        self._is_stale = False

    @classmethod
    def of(
        cls, destination: BrokerAccess, address: str | None = None, timeout: timedelta = _TIMEOUT
    ) -> Self:
        """Return the API of a destination's broker, using the destination's login and TLS
        context."""
        context = None if destination.ssl_context is None else destination.tls()
        return cls(destination.with_login(), address, timeout, context)

    def _new_client(self) -> "httpx.Client":
        """Return a client with the certificates that are in the files now."""
        # Without TLS there is nothing to verify, and loading the system's certificates would take
        # most of a request's time.
        context: ssl.SSLContext | bool = False
        if self._place.scheme == "https":
            context = self._ssl_context or tls.tls_context(self._options)
        return self._httpx.Client(
            base_url=self._place,
            auth=self._auth,
            timeout=self._timeout.total_seconds(),
            verify=context,
        )

    def queue_names(self) -> list[str]:
        """Return the names of the virtual host's queues."""
        return [
            str(queue["name"]) for queue in self._get(f"/api/queues/{self._vhost}?columns=name")
        ]

    def delivery_limits(self, queue: str) -> list[int]:
        """Return the delivery limits that a quorum queue gets from its argument and from policies.

        Policies are listed as they are now. The effective policy that a queue reports is up to ten
        seconds old; it is used only if two policies could apply or a pattern can't be evaluated
        here. Source: measured on 3.10.8, 4.0.5 and 4.3.6.
        """
        found = self._queue(queue)
        try:
            definitions = [
                {} if policy is None else policy.definition
                for policy in (
                    holding(self.policies(kind), queue)
                    for kind in ("policies", "operator-policies")
                )
            ]
        except ConfigurationError:
            definitions = [table(found.get("effective_policy_definition"))]
        limits = [
            table(found.get("arguments")).get("x-delivery-limit"),
            *(definition.get("delivery-limit") for definition in definitions),
        ]
        return [limit for limit in limits if isinstance(limit, int)]

    def arguments_of(self, queue: str) -> dict[str, object]:
        """Return the arguments that a queue was declared with."""
        return table(self._queue(queue, "columns=arguments").get("arguments"))

    def count(self, queue: str) -> QueueCount:
        """Return a queue's counts, up to five seconds old."""
        return _count_of(self._queue(queue, _COUNTS))

    def message_count(self, queue: str) -> int | None:
        """Return a queue's number of messages, including those held by consumers. It is a few
        seconds old; None if the queue has not been counted yet."""
        return _number(self._queue(queue, "columns=messages"), "messages")

    def dead_lettering(self) -> dict[str, int]:
        """Return how many messages each queue of the virtual host is dead-lettering, up to five
        seconds old. Queues that have not been counted are left out."""
        asked = "columns=name,messages,messages_dlx"
        found = {
            str(queue["name"]): _unless_told(queue, "messages_dlx")
            for queue in self._get(f"/api/queues/{self._vhost}?{asked}")
        }
        return {name: count for name, count in found.items() if count is not None}

    def held_back(self) -> dict[str, int | None]:
        """Return how many failed messages the broker holds back in each queue that was declared
        with delayed retries. Counts are up to five seconds old, and None if not available."""
        asked = "columns=name,messages,messages_delayed,arguments"
        return {
            str(queue["name"]): _unless_told(queue, "messages_delayed")
            for queue in self._get(f"/api/queues/{self._vhost}?{asked}")
            if _holds_back(queue)
        }

    def counts(self) -> dict[str, QueueCount]:
        """Return the counts of each queue of the virtual host, up to five seconds old, and its
        rates, averaged over 15 seconds."""
        return {
            str(queue["name"]): _count_of(queue)
            for queue in self._get(f"/api/queues/{self._vhost}?{_COUNTS}")
        }

    def reports(self) -> dict[str, ConsumerReports]:
        """Return what is known of the consumers of each queue that has some."""
        found: dict[str, ConsumerReports] = {}
        columns = "queue.name,arguments,channel_details.peer_host"
        for consumer in self._get(f"/api/consumers/{self._vhost}?columns={columns}"):
            arguments = table(consumer.get("arguments"))
            hung, down = arguments.get(HUNG), arguments.get(DOWN)
            host = table(consumer.get("channel_details")).get("peer_host")
            queue = str(table(consumer.get("queue")).get("name"))
            before = found.get(queue, ConsumerReports())
            more = max(0, hung) if isinstance(hung, int) else None
            found[queue] = ConsumerReports(
                before.hung if more is None else (before.hung or 0) + more,
                before.down | ({in_one_line(down)[:100]} if isinstance(down, str) else set()),
                before.hosts | ({in_one_line(host)[:100]} if isinstance(host, str) else set()),
            )
        return found

    def observe(self) -> Observed:
        """Return the exchanges, queues, bindings and policies of the virtual host."""
        return Observed(
            exchanges={
                exchange["name"]: exchange["type"]
                for exchange in self._get(f"/api/exchanges/{self._vhost}")
            },
            queues={
                queue["name"]: {"x-queue-type": queue["type"], **table(queue["arguments"])}
                for queue in self._get(f"/api/queues/{self._vhost}")
            },
            bindings=frozenset(self.bindings()),
            policies=self.policies(),
        )

    def policies(self, kind: str = "policies") -> tuple[Policy, ...]:
        """Return the virtual host's current policies, or its `operator-policies`."""
        return tuple(
            Policy(
                str(policy["name"]),
                str(policy["pattern"]),
                table(policy.get("definition")),
                int(policy.get("priority", 0)),
                str(policy.get("apply-to", "all")),
            )
            for policy in self._get(f"/api/{kind}/{self._vhost}")
        )

    def bindings(self) -> list[Binding]:
        """Return all bindings to queues and exchanges, except those to the default exchange."""
        return [
            Binding(
                binding["source"],
                binding["destination"],
                binding["routing_key"],
                binding["destination_type"],
                tuple(sorted((binding.get("arguments") or {}).items())),
            )
            for binding in self._get(f"/api/bindings/{self._vhost}")
            if binding["source"]
        ]

    def listed(self, path: str) -> list[dict[str, object]]:
        """Return the objects that the API lists at a path below `/api/`; `{vhost}` in it is
        replaced by the virtual host."""
        return list(self._get(f"/api/{path.replace('{vhost}', self._vhost)}"))

    def set_policy(self, policy: Policy) -> None:
        """Set a policy, replacing one of the same name. It applies at once, to existing and to
        future queues."""
        self._change("PUT", policy, settings_of(policy))

    def remove_policy(self, policy: Policy) -> None:
        """Remove a policy if it exists."""
        self._change("DELETE", policy)

    def _change(
        self,
        method: Literal["PUT", "DELETE"],
        policy: Policy,
        value: Mapping[str, object] | None = None,
    ) -> None:
        path = f"/api/policies/{self._vhost}/{quote(policy.name, safe='')}"
        answer = self._answer(path, method, value)
        if answer.status_code in (401, 403):
            raise PermissionDenied(
                f"the management API at {redact(self.address)} does not let the user "
                f"{self._username!r} change policy {policy.name!r}",
                "Give the user the tag 'policymaker' (rabbitmqctl set_user_tags drops tags that "
                "are not listed), or have an administrator run it.",
            )
        if answer.status_code == 400:
            raise ConfigurationError(
                f"the broker rejected policy {policy.name!r}{_reason_in(_json_in(answer))}",
                "Upgrade all nodes of the broker to RabbitMQ 4.3 or newer.",
            )
        if answer.status_code >= 300 and not (method == "DELETE" and answer.status_code == 404):
            raise self._failed(answer)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _vhost(self) -> str:
        return quote(self._virtual_host, safe="")

    def _queue(self, queue: str, asked: str = "") -> dict[str, Any]:
        """Return the requested fields of a queue; empty if the queue is too new to have them."""
        return table(self._get(f"/api/queues/{self._vhost}/{quote(queue, safe='')}?{asked}"))

    def _get(self, path: str) -> Any:
        answer = self._answer(path)
        where = redact(self.address)
        content = _json_in(answer)
        if answer.status_code in (401, 403):
            if not self._username:
                raise PermissionDenied(
                    f"the management API at {where} wants a user and a password, but the URL logs "
                    "in by certificate",
                    "Put them into its address, as user:password@ before the host "
                    "(--management-url).",
                )
            raise PermissionDenied(
                f"the management API at {where} refused the user "
                f"{self._username!r}{_reason_in(content)}",
                "Check the password, and give the user the tag 'monitoring' or 'management' "
                "(rabbitmqctl set_user_tags) and rights in "
                f"the virtual host {self._virtual_host!r}.",
            )
        if answer.status_code == 404 and content is not None:
            raise ConfigurationError(
                f"the management API at {where} did not find {path.split('?')[0]}",
                "Check the name and the virtual host.",
            )
        if answer.status_code >= 500:
            raise self._failed(answer)
        if answer.status_code == 400 and (reason := _reason_in(content)):
            raise BrokerUnavailable(
                where,
                f"its management API does not answer {path.split('?')[0]}{reason}",
                "Enable the broker's statistics (management.disable_stats, "
                "management_agent.disable_metrics_collector), or use AMQP alone.",
            )
        if answer.status_code != 200 or content is None:
            raise BrokerUnavailable(where, "the server there is not a management API", _ENABLE)
        return content

    def _failed(self, answer: "httpx.Response") -> BrokerUnavailable:
        return BrokerUnavailable(
            redact(self.address),
            f"its management API failed with {answer.status_code}{_reason_in(_json_in(answer))}",
            _BROKEN,
        )

    def _answer(
        self, path: str, method: str = "GET", value: Mapping[str, object] | None = None
    ) -> "httpx.Response":
        if self._is_stale:
            # Certificates get renewed: a later request reads the files again.
            self._client.close()
            self._client, self._is_stale = self._new_client(), False
        try:
            return self._first_answer(path, method, value)
        except self._httpx.HTTPError as error:
            if _cause(error, ssl.SSLError) is not None:
                self._is_stale = True
            raise self._unavailable(redact(self.address), error) from error

    def _first_answer(
        self, path: str, method: str, value: Mapping[str, object] | None
    ) -> "httpx.Response":
        """Return the answer of the first host that answers, and start with that host next time.

        A request may be sent twice. That is safe, because requests only read, set and remove.
        """
        for _ in range(len(self._hosts) - 1):
            try:
                return self._answer_of_host(path, method, value)
            except self._httpx.TransportError:
                # All nodes of a cluster give the same answers.
                self._hosts.rotate(-1)
                self._place = self._place.copy_with(host=self._hosts[0])
                self.address = str(self._place).rstrip("/")
                self._client.close()
                self._client = self._new_client()
        return self._answer_of_host(path, method, value)

    def _answer_of_host(
        self, path: str, method: str, value: Mapping[str, object] | None
    ) -> "httpx.Response":
        """Return an answer; send the request again if the connection ends without one."""
        try:
            return self._client.request(method, path, json=value)
        except (self._httpx.RemoteProtocolError, self._httpx.ReadError, self._httpx.WriteError):
            return self._client.request(method, path, json=value)

    def _unavailable(self, where: str, error: Exception) -> BrokerUnavailable:
        """Return the error for a request that got no answer, with a remedy."""
        broken = _cause(error, ssl.SSLError)
        if broken is not None:
            failure = tls.failure_of(broken)
            remedy = _TLS
            if isinstance(broken, ssl.SSLCertVerificationError):
                remedy = (
                    "Name the CA that signed it, if it is the broker's own: --management-url "
                    f"'{where.rstrip('/')}/?cacertfile=/etc/ca.pem'."
                )
                remedy = (
                    _WRONG_NAME
                    if failure.code in _WRONG_NAMES
                    else failure.remedy
                    if failure.code in _WRONG_TIMES
                    else remedy
                )
            return BrokerUnavailable(where, failure.reason, remedy)
        if isinstance(error, self._httpx.RemoteProtocolError):
            return BrokerUnavailable(where, "the server there does not speak HTTP", _NO_HTTP)
        if isinstance(error, self._httpx.ConnectTimeout):
            return BrokerUnavailable(
                where,
                f"its management API was not reached in {self._timeout.total_seconds():g} s",
                _NO_CONNECTION,
            )
        if isinstance(error, self._httpx.TimeoutException):
            return BrokerUnavailable(
                where,
                f"its management API did not answer in {self._timeout.total_seconds():g} s",
                _LATE,
            )
        known = next((words for part, words in _WORDS.items() if part in str(error)), str(error))
        return BrokerUnavailable(where, f"its management API does not answer: {known}", _ENABLE)


_WORDS = {
    "Connection refused": "nothing listens there",
    "Name or service not known": "the host name is not known",
    "nodename nor servname": "the host name is not known",
}
"""What texts of the operating system mean."""


def table(value: object) -> dict[str, object]:
    """Return a JSON object from an answer; some versions send an empty list for an empty object.

    Source: measured on RabbitMQ 3.10.8, for a queue that was just declared.
    """
    return dict(value) if isinstance(value, Mapping) else {}


def _cause(error: BaseException | None, kind: type[_Error]) -> _Error | None:
    """Return the first exception of type `kind` in the chain of causes."""
    while error is not None:
        if isinstance(error, kind):
            return error
        error = error.__cause__ or error.__context__
    return None


class _Object(dict[str, Any]):
    """A JSON object from the API. Subscripting it with a key that is missing raises
    BrokerUnavailable: the answer can't be used."""

    address = ""
    """The API's address."""

    def __missing__(self, name: str) -> Any:
        raise BrokerUnavailable(
            self.address,
            f"its management API's answer can't be read: an object has no {name!r}",
            "Check that the address is the broker's own, and look at its log.",
        )


def _json_in(answer: "httpx.Response") -> Any:
    """Return an answer's JSON, or None if it is not JSON."""

    def told(values: dict[str, Any]) -> _Object:
        found = _Object(values)
        found.address = redact(str(answer.url.join("/")))
        return found

    try:
        return answer.json(object_hook=told)
    except ValueError:
        return None


def _reason_in(content: object) -> str:
    """Return the API's reason for a refusal in brackets, or ""."""
    reason = content.get("reason") if isinstance(content, Mapping) else None
    return f" ({reason})" if isinstance(reason, str) else ""


def _count_of(queue: Mapping[str, Any]) -> QueueCount:
    counted = table(queue.get("message_stats"))
    growth = _rate_of(queue, "messages_unacknowledged", None)
    # A queue without traffic has no counts. With `management.rates_mode` set to `none`, no queue
    # has counts or this rate.
    idle = None if growth is None else 0.0
    head = queue.get("head_message_timestamp")
    return QueueCount(
        ready=_number(queue, "messages_ready"),
        held=_number(queue, "messages_unacknowledged"),
        consumers=_number(queue, "consumers"),
        published=_rate_of(counted, "publish", idle),
        delivered=_rate_of(counted, "deliver_get", idle),
        acked=_rate_of(counted, "ack", idle),
        held_growth=growth or 0.0,
        dead_lettering=_unless_told(queue, "messages_dlx"),
        held_back=_unless_told(queue, "messages_delayed"),
        holds_back=_holds_back(queue),
        head_published=head if isinstance(head, int) else None,
    )


def _number(told: Mapping[str, Any], name: str) -> int | None:
    value = told.get(name)
    return value if isinstance(value, int) else None


def _unless_told(queue: Mapping[str, Any], name: str) -> int | None:
    """Return a count that only some queues report: messages being dead-lettered at least once, or
    held back.

    If the queue has been counted without it, the count is 0; otherwise it is unknown (None).
    """
    told = _number(queue, name)
    counted = {"messages", "messages_ready"} & queue.keys()
    return 0 if told is None and counted else told


def _holds_back(queue: Mapping[str, Any]) -> bool:
    return "x-delayed-retry-type" in table(queue.get("arguments"))


def _rate_of(counts: Mapping[str, Any], name: str, unknown: float | None) -> float | None:
    details = counts.get(f"{name}_details") or {}  # an empty list if there are no details
    return float(details["avg_rate"]) if "avg_rate" in details else unknown
