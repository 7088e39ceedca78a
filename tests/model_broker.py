"""A model of the broker's part in a retry: x-death, the trip through the retry queue, and what each
version does with a client's.

It is as simple as can be, so that a test may set it against `decide`: one queue, one message.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

from field_tables import QUEUE
from redrive.amqp.field_table import FieldValue
from redrive.amqp.properties import Properties
from redrive.topology import headers
from redrive.topology.broker_version import BrokerVersion
from redrive.topology.headers import Delivery
from redrive.topology.rewrite import Publish

RETRY_QUEUE = f"{QUEUE}@retry"
_TIME = datetime(2024, 5, 17, 8, 0, tzinfo=UTC)


class LostMessage(AssertionError):
    """The broker would have lost the message."""


class ModelBroker:
    """What a broker of this version makes of a rejection, and of a publish to the retry
    exchange."""

    def __init__(self, version: BrokerVersion, way_back: str = "") -> None:
        self._version = version
        self._way_back = way_back
        self._own_deaths: list[FieldValue] | None = None

    def first_delivery(self, properties: Properties) -> Delivery:
        """A message as its publisher sent it."""
        self._own_deaths = None
        return Delivery(QUEUE, "master", "user.create", properties, b"{}", way_back=self._way_back)

    def delivery_of(self, publish: Publish) -> Delivery:
        """A publish of ours to the main queue, or to the failed one, as it is delivered there."""
        self._own_deaths = None
        return Delivery(
            QUEUE,
            publish.exchange,
            publish.routing_key,
            publish.properties,
            publish.body,
            way_back=self._way_back,
        )

    def reject(self, delivery: Delivery) -> Delivery:
        """The next delivery of a message that was rejected."""
        rejected = self._with_death(
            delivery.properties, QUEUE, "rejected", delivery.exchange, delivery.routing_key
        )
        return self._return_of(rejected, exchange="master.retry")

    def through_the_retry_queue(self, publish: Publish) -> Delivery:
        """The next delivery of a message that was published to its retry queue."""
        assert (publish.exchange, publish.routing_key) == ("master.retry", QUEUE)
        self._own_deaths = None
        return self._return_of(publish.properties, exchange=publish.exchange)

    def down_the_ladder(self, publish: Publish) -> Delivery:
        """The next delivery of a message that was published to the delay ladder, which notes a
        death in one of its queues."""
        assert publish.exchange.startswith("master.delay.")
        self._own_deaths = None
        expired = self._with_death(
            publish.properties, publish.exchange, "expired", publish.exchange, publish.routing_key
        )
        return Delivery(
            QUEUE,
            "master.deliver",
            publish.routing_key,
            expired,
            publish.body,
            way_back=self._way_back,
        )

    def _return_of(self, properties: Properties, exchange: str) -> Delivery:
        expired = self._with_death(properties, RETRY_QUEUE, "expired", exchange, QUEUE)
        return Delivery(QUEUE, self._way_back, QUEUE, expired, b"{}", way_back=self._way_back)

    def _with_death(
        self, properties: Properties, queue: str, reason: str, exchange: str, routing_key: str
    ) -> Properties:
        entries = self._deaths_so_far(properties)
        keys: list[FieldValue] = [routing_key]
        death: dict[str, FieldValue] = {
            "count": 1,
            "reason": reason,
            "queue": queue,
            "time": _TIME,
            "exchange": exchange,
            "routing-keys": keys,
        }
        for entry in list(entries):
            assert isinstance(entry, Mapping)
            if (entry["queue"], entry["reason"]) == (queue, reason):
                assert isinstance(entry["count"], int)
                # It notes the way of the first time. Source: measured on 3.10.8, 4.0.5 and 4.3.6.
                death = {**entry, "count": entry["count"] + 1}
                entries.remove(entry)
        entries.insert(0, death)
        self._own_deaths = entries
        return properties._replace(
            headers=properties.headers.with_values({headers.X_DEATH: entries})
        )

    def _deaths_so_far(self, properties: Properties) -> list[FieldValue]:
        """Its own notes; a client's only on the versions that go on counting in them. Source:
        measured on 3.10.8, 4.0.5, 4.3.6."""
        if not self._version.continues_client_x_death:
            return list(self._own_deaths or [])
        if headers.X_DEATH not in properties.headers:
            return []
        x_death = properties.headers[headers.X_DEATH]
        if not headers.deaths_in(properties.headers.raw_by_name()[headers.X_DEATH]).are_well_formed:
            raise LostMessage(repr(x_death))
        assert isinstance(x_death, list)
        return list(x_death)
