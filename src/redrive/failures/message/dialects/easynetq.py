"""Failure notes of EasyNetQ's error queue: a JSON envelope around the failed message.

Source: EasyNetQ 8.1.5, SystemMessages/Error.cs, Consumer/DefaultConsumeErrorStrategy.cs and
Serialization/JsonHeaderExtensions.cs.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.errors import ConfigurationError
from redrive.failures.message.dialects import typed_json
from redrive.failures.message.dialects.clues import Clues, mapping_of, moment_of, text_of
from redrive.failures.message.dialects.dialect import Dialect
from redrive.failures.message.dialects.failure_notes import FailureNotes
from redrive.topology.headers import Delivery

_ERROR = re.compile(r"([A-Za-z_][\w.+`]*)(?:: ([^\r\n]*))?")
_PROPERTIES = {
    "ContentType": "content_type",
    "ContentEncoding": "content_encoding",
    "DeliveryMode": "delivery_mode",
    "Priority": "priority",
    "CorrelationId": "correlation_id",
    "ReplyTo": "reply_to",
    "MessageId": "message_id",
    "Timestamp": "timestamp",
    "Type": "type",
    "UserId": "user_id",
    "AppId": "app_id",
    "ClusterId": "cluster_id",
}
"""The properties to keep, by their names in the envelope. A requeue never keeps an expiration."""
_MOST = 64 * 1024
"""Limit in bytes for properties, so that they fit into a frame, whose default size is 128 KiB.

No message can have had many more, and properties that don't fit close the connection.
"""


def read(clues: Clues) -> FailureNotes | None:
    if not (clues.type or "").startswith("EasyNetQ.SystemMessages.Error"):
        return None
    exception = text_of(clues.envelope.get("Exception"))
    found = _ERROR.match(exception or "")
    return FailureNotes(
        "easynetq",
        error_type=found[1] if found else None,
        error_message=found[2] if found else exception,
        traceback=exception,
        failed_at=moment_of(clues.envelope.get("DateTime")),
        queue=text_of(clues.envelope.get("Queue")),
        exchange=text_of(clues.envelope.get("Exchange")),
        routing_key=text_of(clues.envelope.get("RoutingKey")),
    )


def _renew(delivery: Delivery) -> Delivery:
    """Return the message in the envelope, or the envelope if parts of it can't be read."""
    envelope = Clues(delivery).envelope
    message = text_of(envelope.get("Message"))
    given = envelope.get("BasicProperties")
    if message is None or not isinstance(given, Mapping):
        return delivery
    try:
        properties = _properties_of(given)
        fits = len(properties.encode()) <= _MOST
    except (ConfigurationError, typed_json.UnreadableValue):
        return delivery
    return replace(delivery, properties=properties, body=message.encode()) if fits else delivery


def _properties_of(given: Mapping[str, object]) -> Properties:
    """Build the properties that the envelope describes."""
    values = {
        ours: given[theirs]
        for theirs, ours in _PROPERTIES.items()
        # Its serializers write all properties, with a flag for each that tells whether it is
        # present.
        if given.get(theirs) is not None and given.get(f"{theirs}Present") is not False
    }
    table = Table(typed_json.fields_of(mapping_of(given.get("Headers"))))
    # The encoder refuses a value whose type doesn't fit its property.
    return Properties()._replace(**values, headers=table)  # type: ignore[arg-type]


DIALECT = Dialect("easynetq", read, _renew)
