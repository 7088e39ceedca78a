"""Pause and resume subscriptions as an operator, and tell what is paused."""

from collections.abc import Mapping

from redrive.failures.store.operator_name import whoami
from redrive.pubsub.blocking import control
from redrive.pubsub.blocking.connection import Connector, default_name
from redrive.pubsub.control_request import control_for
from redrive.topology.control import Action, Control
from redrive.topology.durations import Duration
from redrive.topology.names import ExchangeFamily
from redrive.topology.rates import Rate


def order(
    url: str,
    exchanges: ExchangeFamily,
    queue: str,
    action: Action,
    *,
    reason: str = "",
    duration: Duration | None = None,
    rate: Rate | None = None,
) -> Control:
    """Pause or resume a subscription; return what was written, with the broker's user."""
    connector = Connector(url, default_name(action, queue))
    wanted = control_for(queue, action, reason=reason, for_=duration, rate=rate, who=whoami())
    control.send(connector, exchanges, wanted)
    return wanted.by_user(connector.url.username)


def paused(url: str, exchanges: ExchangeFamily) -> Mapping[str, Control]:
    """Return the pauses and rates in force, by queue."""
    return control.read(Connector(url, default_name("pauses")), exchanges)
