"""One table of what differs between broker versions; no other module checks versions.

Every line was measured on RabbitMQ 3.10.8, 4.0.5 and 4.3.6, or comes from the release notes that it
names.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from redrive.errors import ConfigurationError

CONSUMER_TIMEOUT = timedelta(minutes=30)
"""The default time that a delivery may stay unsettled before the broker closes its channel. Source:
RabbitMQ 3.10 to 4.3, `consumer_timeout`."""

_NEWEST_PATCH = 999_999_999
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?")


@dataclass(frozen=True, order=True, slots=True)
class BrokerVersion:
    """The version of a RabbitMQ broker, from its server properties."""

    major: int
    minor: int
    patch: int = 0

    @classmethod
    def parse(cls, text: object) -> "BrokerVersion":
        """Parse a version such as `4.0.5` or `3.13.0-rc.1`; an unreadable one counts as the
        newest."""
        found = _VERSION.match(text) if isinstance(text, str) else None
        return cls(*(int(part or 0) for part in found.groups())) if found else NEWEST

    @classmethod
    def named(cls, text: str) -> "BrokerVersion":
        """Parse a version that a user wrote: `4.3.6`, or `4.3` for the newest of that series."""
        found = _VERSION.fullmatch(text)
        if not found:
            raise ConfigurationError(
                f"{text!r} is not a version of RabbitMQ", "Give one such as 4.3 or 4.3.6."
            )
        return cls(*(int(part) if part else _NEWEST_PATCH for part in found.groups()))

    @property
    def continues_client_x_death(self) -> bool:
        """Whether the broker goes on counting in an `x-death` header that a client published.

        Source: measured; RabbitMQ 3.13.0 stopped it, 3.13.3 restored it (release notes), 4.0
        stopped it for good.
        """
        return self < BrokerVersion(3, 13, 0) or BrokerVersion(3, 13, 3) <= self < BrokerVersion(
            4, 0, 0
        )

    @property
    def has_at_least_once_dead_lettering(self) -> bool:
        """Whether quorum queues can dead-letter with internal confirms. Source: RabbitMQ 3.10
        release notes."""
        return self >= BrokerVersion(3, 10)

    @property
    def holds_failed_messages_back(self) -> bool:
        """Whether quorum queues can delay rejected messages themselves (`x-delayed-retry-type`).
        Source: RabbitMQ 4.3 release notes; measured on 4.3.6."""
        return self >= BrokerVersion(4, 3, 0)

    @property
    def deletes_after_deliveries(self) -> int | None:
        """The default delivery limit of a quorum queue: the broker deletes a message after more
        returns than this.

        Source: RabbitMQ 4.0 release notes (20 by default); measured on 4.0.5: deleted at the 21st.
        """
        return 20 if self >= BrokerVersion(4, 0) else None

    def delivery_limit(self, set_: Iterable[int]) -> int | None:
        """Return after how many returns a quorum queue loses a message; None for never.

        Source: measured on 3.10.8, 4.0.5 and 4.3.6 with an argument and a policy. The lowest limit
        counts. A limit below 0 means no limit in RabbitMQ 4, and any other limit takes precedence
        over it there; in older versions it loses a message at its first return.
        """
        limits = list(set_)
        if self.takes_a_delivery_limit_for_none:
            of_its_own = [limit for limit in limits if limit >= 0]
            if limits and not of_its_own:
                return None
            return min(of_its_own, default=self.deletes_after_deliveries)
        return max(0, min(limits)) if limits else None

    @property
    def counts_what_is_returned(self) -> bool:
        """Whether a quorum queue counts a nack with requeueing as a delivery. Source: measured on
        3.10.8, 4.0.5 and 4.3.6."""
        return self < BrokerVersion(4, 3)

    @property
    def takes_a_delivery_limit_for_none(self) -> bool:
        """Whether a delivery limit below 0 means no limit. Source: measured; 3.10.8 deletes a
        message at its first return, 4.0.5 never."""
        return self >= BrokerVersion(4, 0, 0)

    @property
    def has_a_consumer_timeout_for_each_queue(self) -> bool:
        """Whether a policy can set how long a delivery may stay unsettled. Source: RabbitMQ 3.12
        release notes."""
        return self >= BrokerVersion(3, 12, 0)

    @property
    def has_a_consumer_timeout_for_each_consumer(self) -> bool:
        """Whether a consumer of a quorum queue can set how long a delivery may stay unsettled
        (`x-consumer-timeout`), and the queue itself keeps the time. Source: measured on 4.3.6;
        older versions have an argument of that name, but keep the time for each channel."""
        return self >= BrokerVersion(4, 3)

    @property
    def has_a_consumer_timeout_on_classic_queues(self) -> bool:
        """Whether a delivery from a classic queue may stay unsettled only for a limited time.

        Source: RabbitMQ 4.3 moved the timeout from channels to quorum queues
        (https://github.com/rabbitmq/rabbitmq-server/issues/16983); measured on 4.3.6 with a timeout
        of 5 s: a quorum queue cancelled its consumer after 5 s, a classic queue did not within 200
        s.
        """
        return self < BrokerVersion(4, 3)

    @property
    def largest_message(self) -> int:
        """The largest body that a client may publish, in bytes, if `max_message_size` is not
        configured.

        Source: measured on RabbitMQ 3.10.8 (128 MiB), 4.0.5 and 4.3.6 (16 MiB), by
        `application:get_env(rabbit, max_message_size)`.
        """
        return (128 if self < BrokerVersion(4, 0) else 16) * 1024 * 1024

    @property
    def mirrors_classic_queues(self) -> bool:
        """Whether a policy can mirror classic queues. Source: RabbitMQ 4.0 release notes; 4.0
        removed it."""
        return self < BrokerVersion(4, 0)

    @property
    def can_run_the_delayed_message_plugin(self) -> bool:
        """Whether the plugin rabbitmq_delayed_message_exchange works on this version.

        Source: it keeps messages in Mnesia, which RabbitMQ 4.3 no longer has, and was archived in
        January 2026 (https://github.com/rabbitmq/rabbitmq-website/issues/2446).
        """
        return self < BrokerVersion(4, 3)

    @property
    def may_stop_dead_lettering(self) -> bool:
        """Whether at-least-once dead-lettering may stop for good after a fault.

        Source: measured on 3.10.8, after kills and partitions; the release notes of 3.10.20 and
        3.11.12, "improved resiliency of dead-lettering"
        (https://github.com/rabbitmq/rabbitmq-server/pull/7677); never seen on 4.0.5 and 4.3.6.
        """
        return any(
            self < mended and (self.major, self.minor) == (mended.major, mended.minor)
            for mended in DEAD_LETTERING_MENDED
        )

    @property
    def wedges_single_active_consumers(self) -> bool:
        """Whether a quorum queue with a single active consumer stops delivering once each consumer
        has run into its timeout.

        Source: https://github.com/rabbitmq/rabbitmq-server/issues/17317, "4.3.0 through 4.3.5".
        """
        return BrokerVersion(4, 3, 0) <= self < BrokerVersion(4, 3, 6)

    def __str__(self) -> str:
        patch = "" if self.patch == _NEWEST_PATCH else f".{self.patch}"
        return f"{self.major}.{self.minor}{patch}"


NEWEST = BrokerVersion(999, 0, 0)
DEAD_LETTERING_MENDED = (BrokerVersion(3, 10, 20), BrokerVersion(3, 11, 12))
"""The first version of each affected series whose at-least-once dead-lettering continues after a
fault."""
