"""What each broker version does differently: one table, read nowhere else.

Every line was measured on RabbitMQ 3.10.8, 4.0.5 and 4.3.6, or is from the release notes it names.
"""

import re
from dataclasses import dataclass
from datetime import timedelta

CONSUMER_TIMEOUT = timedelta(minutes=30)
"""How long a delivery may stay unsettled where nobody has set it: then the broker closes its channel.
Source: RabbitMQ 3.10 to 4.3, `consumer_timeout`."""

_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?")


@dataclass(frozen=True, order=True, slots=True)
class BrokerVersion:
    """The version of a RabbitMQ broker, as its server properties give it."""

    major: int
    minor: int
    patch: int = 0

    @classmethod
    def parse(cls, text: object) -> "BrokerVersion":
        """The version in a text such as `4.0.5` or `3.13.0-rc.1`; an unreadable one counts as the newest."""
        found = _VERSION.match(text) if isinstance(text, str) else None
        return cls(*(int(part or 0) for part in found.groups())) if found else NEWEST

    @property
    def continues_client_x_death(self) -> bool:
        """Whether the broker goes on counting in an `x-death` header that a client has published.

        Source: measured; RabbitMQ 3.13.0 stopped it, 3.13.3 restored it (release notes), 4.0 stopped it for good.
        """
        return self < BrokerVersion(3, 13, 0) or BrokerVersion(3, 13, 3) <= self < BrokerVersion(4, 0, 0)

    @property
    def has_at_least_once_dead_lettering(self) -> bool:
        """Whether quorum queues can dead-letter with internal confirms. Source: RabbitMQ 3.10 release notes."""
        return self >= BrokerVersion(3, 10)

    @property
    def deletes_after_deliveries(self) -> int | None:
        """The delivery limit of a quorum queue that sets none: after so many returns the broker deletes a message.

        Source: RabbitMQ 4.0 release notes (20 by default); measured on 4.0.5: deleted at the 21st.
        """
        return 20 if self >= BrokerVersion(4, 0) else None

    @property
    def takes_a_delivery_limit_for_none(self) -> bool:
        """Whether a delivery limit below 0 is none. Source: measured; 3.10.8 deletes a message at its first return, 4.0.5 never."""
        return self >= BrokerVersion(4, 0, 0)

    @property
    def has_a_consumer_timeout_for_each_queue(self) -> bool:
        """Whether a policy can set how long a delivery may stay unsettled. Source: RabbitMQ 3.12 release notes."""
        return self >= BrokerVersion(3, 12, 0)

    @property
    def wedges_single_active_consumers(self) -> bool:
        """Whether a quorum queue with a single active consumer delivers to nobody once each consumer ran into its timeout.

        Source: https://github.com/rabbitmq/rabbitmq-server/issues/17317, "4.3.0 through 4.3.5".
        """
        return BrokerVersion(4, 3, 0) <= self < BrokerVersion(4, 3, 6)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


NEWEST = BrokerVersion(999, 0, 0)
