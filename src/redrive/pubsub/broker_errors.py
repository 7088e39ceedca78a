"""Converts errors from the broker or the system to redrive's errors, so that no client exception
leaves redrive."""

import re
import socket
import ssl

from redrive.errors import BrokerUnavailable, ConfigurationError, PermissionDenied, RedriveError
from redrive.pubsub import tls
from redrive.pubsub.url import BrokerURL
from redrive.topology import names
from redrive.topology.diff import mismatch_of
from redrive.topology.ladder import HOW_TO_HAVE_THE_LADDER

_NOT_ALLOWED = 530
_ACCESS_REFUSED = 403
INTERNAL_ERROR = 541
"""Reply code of a broker that failed by itself, not because of the request."""
_NAMED_RIGHT = re.compile(r"\b(configure|write|read) access")
_NODE_DOWN = re.compile(r"home node '([^']+)' .* is down or inaccessible", re.DOTALL)
"""RabbitMQ's text, with 404, for a classic queue that it can't reach. Source: measured on
3.10.8."""
_CHECK_THE_PORT = "Check the port (5672, or 5671 with amqps://)"
_RIGHTS = {
    "declare": "configure",
    "delete": "configure",
    "replace": "configure",
    "publish": "write",
}


def of_system(error: BaseException, url: BrokerURL) -> BrokerUnavailable | None:
    """Return the error for a failure of the network or of TLS; None if it is neither."""
    match error:
        case ssl.SSLError():
            return of_tls(tls.failure_of(error), url)
        case socket.gaierror():
            return BrokerUnavailable(
                url.address, "the host name is not known", "Check the host in the URL."
            )
        case ConnectionRefusedError():
            return BrokerUnavailable(url.address, "nothing listens there (connection refused)")
        case _:
            failure = tls.failure_of_text(str(error))  # some clients keep only an error's text
            return None if failure is None else of_tls(failure, url)


def of_tls(failure: tls.Failure, url: BrokerURL) -> BrokerUnavailable:
    """Return the error for a failed TLS connection."""
    return BrokerUnavailable(url.address, failure.reason, failure.remedy)


def of_foreign_protocol(url: BrokerURL) -> BrokerUnavailable:
    """Return the error for a server that is not RabbitMQ."""
    return BrokerUnavailable(
        url.address, "what answers there does not speak AMQP", f"{_CHECK_THE_PORT}."
    )


def of_broken_protocol(url: BrokerURL) -> BrokerUnavailable:
    """Return the error for a connection that began in AMQP and then received something else."""
    return BrokerUnavailable(
        url.address,
        "the broker broke the protocol, AMQP 0-9-1: what it sent can't be read",
        "See the broker's log, and check that it is RabbitMQ, and that nothing in between, such as "
        "a proxy, changes what it sends.",
    )


def of_silent_close(url: BrokerURL) -> BrokerUnavailable:
    """Return the error for a connection that was closed before the server sent any AMQP.

    The server may be a broker that wants another certificate, a load balancer without a broker
    behind it, or not RabbitMQ at all. With TLS 1.3 a client learns only after the handshake that
    its certificate was refused, and perhaps only by the closed connection.
    """
    if url.tls:
        return of_tls(tls.CLOSED_AFTER_HANDSHAKE, url)
    return BrokerUnavailable(
        url.address,
        "it closed the connection before it said anything in AMQP",
        f"{_CHECK_THE_PORT}, and that a load balancer in front of RabbitMQ has a broker to pass "
        "this on to.",
    )


def of_silence(url: BrokerURL) -> BrokerUnavailable:
    """Return the error for a broker that did not answer in time."""
    return BrokerUnavailable(
        url.address,
        "it did not answer in time",
        "Check that RabbitMQ runs there and is not overloaded, and that a load balancer in front "
        "of it has a broker to pass this on to.",
    )


def of_heartbeat(url: BrokerURL) -> BrokerUnavailable:
    """Return the error for a connection without heartbeats."""
    return BrokerUnavailable(url.address, "it sent no heartbeat")


def of_lost_connection(why: object, url: BrokerURL) -> BrokerUnavailable:
    """Return the error for a lost connection; `why` is what is known about the cause."""
    return BrokerUnavailable(
        url.address, f"the connection was lost ({str(why) or type(why).__name__})"
    )


def of_channel(code: int, text: str, what: str) -> RedriveError:
    """Return the error for a channel that the broker closed."""
    mismatch = mismatch_of(text)
    if mismatch is not None:
        return mismatch
    down = _NODE_DOWN.search(text)
    if down is not None:
        return BrokerUnavailable(
            down[1],
            f"it has the only copy of what is asked for, and is down: can't {what}",
            "Start that node. A quorum queue has copies on others.",
        )
    match code:
        case 403:
            return PermissionDenied(
                f"the broker refused to {what}: {text}", _permission_remedy(text, what)
            )
        case 404:
            return ConfigurationError(
                f"can't {what}: {text}",
                "Declare it first, for instance with `redrive declare`, or check the name.",
            )
        case 405:
            return ConfigurationError(
                f"can't {what}: {text}",
                "Another connection has the queue for itself; wait for it or use another name.",
            )
        case _:
            return ConfigurationError(
                f"the broker refused to {what}: {text or code}", "See the broker's log for more."
            )


def says_missing(code: int, text: str) -> bool:
    """Check whether the broker says that something does not exist, as opposed to being unreachable
    now."""
    return code == 404 and _NODE_DOWN.search(text) is None


def of_publish(code: int, text: str, exchange: str) -> RedriveError:
    """Return the error for a publishing channel that the broker closed because the exchange does
    not exist or the user may not use it."""
    what = f"publish to exchange {exchange!r}"
    if code == 403 and names.is_of_a_ladder(exchange):
        return PermissionDenied(f"the broker refused to {what}: {text}", HOW_TO_HAVE_THE_LADDER)
    if code == 404 and names.is_of_a_ladder(exchange):
        return ConfigurationError(f"can't {what}: {text}", HOW_TO_HAVE_THE_LADDER)
    return of_channel(code, text, what)


def of_closed_connection(code: int, text: str, url: BrokerURL) -> RedriveError:
    """Return the error for a connection that the broker closed."""
    if code == _NOT_ALLOWED:
        return (
            of_virtual_host(url)
            if "vhost" in text
            else PermissionDenied(text, "Ask the broker's administrator.")
        )
    if code == _ACCESS_REFUSED:
        return of_login(url)
    return BrokerUnavailable(
        url.address,
        f"the broker closed the connection ({code} {text})",
        "See the broker's log.",
    )


def of_login(url: BrokerURL) -> PermissionDenied:
    """Return the error for a user, password or certificate that the broker refused."""
    if url.auth_mechanism == "external":
        return PermissionDenied(
            f"RabbitMQ at {url.address} refused the login by client certificate (EXTERNAL)",
            "Check that the plugin rabbitmq_auth_mechanism_ssl is enabled, that auth_mechanisms "
            "has EXTERNAL, and that a user has the "
            "certificate's name (ssl_cert_login_from).",
        )
    return PermissionDenied(
        f"RabbitMQ at {url.address} refused the user {url.username!r} or the password",
        "Check both in the URL; the user 'guest' may only connect from the broker's own host.",
    )


def of_virtual_host(url: BrokerURL) -> PermissionDenied:
    """Return the error for a virtual host that does not exist or that the user may not use."""
    return PermissionDenied(
        f"RabbitMQ at {url.address} has no virtual host {url.virtual_host!r} that {_user(url)} may "
        "use",
        f"Create it (rabbitmqctl add_vhost {url.virtual_host}) and grant the user its permissions, "
        "or check the URL's path.",
    )


def _user(url: BrokerURL) -> str:
    return f"the user {url.username!r}" if url.username else "the certificate's user"


def _permission_remedy(text: str, what: str) -> str:
    """Say which permission to grant: as the broker names it (from 3.11 on), else by the action that
    failed."""
    named = _NAMED_RIGHT.search(text)
    right = f"{named[1]} permission on it" if named else _right_for(what)
    way_round = (
        ", or have another declare it: declare=False" if right.startswith("configure") else ""
    )
    return f"Grant the user the {right} (rabbitmqctl set_permissions){way_round}."


def _right_for(what: str) -> str:
    """Return the permission that an action needs.

    Source: https://www.rabbitmq.com/docs/access-control#authorisation
    """
    if "binding" in what:
        return "write permission on the queue and the read permission on the exchange"
    verb = what.partition(" ")[0]
    return f"{_RIGHTS.get(verb, 'read')} permission on it"


def of_cancelled_consumer(queue: str) -> RedriveError:
    """Return the error for a consumer that the broker cancelled."""
    return ConfigurationError(
        f"the broker stopped the consumer of queue {queue!r}",
        "The queue was deleted, or its node went down.",
    )
