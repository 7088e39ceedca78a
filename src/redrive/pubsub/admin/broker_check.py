"""What is wrong with the subscriptions of a virtual host, found in one go and without watching for
anything to change: what `redrive doctor` says at first sight."""

from dataclasses import dataclass

from redrive.errors import ConfigurationError
from redrive.pubsub.admin.amqp_survey import facts_over_amqp, merged
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.admin.management_survey import facts_over_management
from redrive.pubsub.blocking.connection import Connector, default_name
from redrive.pubsub.blocking.declarer import declaring
from redrive.topology import names
from redrive.topology.doctor.diagnosis import Question, diagnose
from redrive.topology.doctor.finding import Finding
from redrive.topology.names import ExchangeFamily, check_queue_name


@dataclass(frozen=True, slots=True)
class BrokerCheck:
    """What was found.

    Args:
        findings: what will hurt.
        subscriptions: how many were looked at.
    """

    findings: list[Finding]
    subscriptions: int


def checked_up(url: str, management_url: str | None, family: ExchangeFamily) -> BrokerCheck:
    """Looks at all subscriptions of a virtual host. Whether dead-lettering is stuck, and what the
    user may do, takes longer to find out: `redrive doctor` does.

    Raises:
        BrokerUnavailable, PermissionDenied, ConfigurationError: the broker or the management API
            tells nothing.
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
