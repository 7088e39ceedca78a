"""Which retry policies the workers of a queue have: their connections tell the broker."""

from collections.abc import Collection
from datetime import timedelta

from redrive.errors import RedriveError
from redrive.pubsub.admin.management_api import ManagementAPI
from redrive.pubsub.lifecycle import BrokerAccess
from redrive.pubsub.url import policy_of

_PATIENCE = timedelta(seconds=3)


def worker_policies(
    destination: BrokerAccess, management_url: str | None, queues: Collection[str]
) -> dict[str, list[str]] | None:
    """Say in words which retry policies the workers of each queue have: several while a deploy goes
    on, none where nobody consumes it, or only who does not tell. None where the management API does
    not answer, or does not let this user see connections."""
    try:
        with ManagementAPI.of(destination, management_url, _PATIENCE) as management:
            connections = management.listed("vhosts/{vhost}/connections?columns=client_properties")
    except RedriveError:
        return None
    told = [
        properties
        for one in connections
        if isinstance(properties := one.get("client_properties"), dict)
    ]
    return {
        queue: sorted({policy for one in told if (policy := policy_of(one, queue))})
        for queue in queues
    }
