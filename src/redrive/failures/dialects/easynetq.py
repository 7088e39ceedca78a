"""EasyNetQ's error queue: an envelope of JSON around what failed.

Source: EasyNetQ 8.1.5, SystemMessages/Error.cs, Consumer/DefaultConsumeErrorStrategy.cs and
Serialization/JsonHeaderExtensions.cs.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from redrive.amqp.field_table import Table
from redrive.amqp.properties import Properties
from redrive.errors import ConfigurationError
from redrive.failures.dialects import typed_json
from redrive.failures.dialects.clues import Clues, mapping_of, moment_of, text_of
from redrive.failures.dialects.dialect import Dialect
from redrive.failures.dialects.failure_notes import FailureNotes
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
"""Each property that a move keeps, by its name in the envelope: no move keeps an expiration."""
_MOST = 64 * 1024
"""The bytes of properties that surely fit a frame, whose default size is 128 KiB. A message cannot
have had many more, and one that does not fit closes the connection."""


def read(clues: Clues) -> FailureNotes | None:
    """Reads what EasyNetQ leaves."""
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
    """The message that is in the envelope, with its own properties; the envelope where not all of
    it can be read."""
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
    """The properties as the envelope has them."""
    values = {
        ours: given[theirs]
        for theirs, ours in _PROPERTIES.items()
        # Those serializers write all of them, with a word on which are there.
        if given.get(theirs) is not None and given.get(f"{theirs}Present") is not False
    }
    table = Table(typed_json.fields_of(mapping_of(given.get("Headers"))))
    # What is of another type than the property has, its encoder refuses.
    return Properties()._replace(**values, headers=table)  # type: ignore[arg-type]


DIALECT = Dialect("easynetq", read, _renew)
