"""Failure notes of MassTransit's `_error` and `_skipped` queues.

Source: MassTransit 8.5.8, Contexts/SendContextExtensions.cs and MessageHeaders.cs. Older versions
leave some of these headers out.
"""

import re
from dataclasses import replace
from urllib.parse import unquote, urlsplit

from redrive.failures.message.dialects.clues import Clues, mapping_of, moment_of
from redrive.failures.message.dialects.dialect import Dialect
from redrive.failures.message.dialects.failure_notes import FailureNotes
from redrive.failures.message.dialects.renewal import HeaderEdit, of_headers, with_json
from redrive.topology.headers import Delivery


def read(clues: Clues) -> FailureNotes | None:
    if not clues.has("MT-Reason"):
        return None
    return FailureNotes(
        "masstransit",
        error_type=clues.text("MT-Fault-ExceptionType"),
        error_message=clues.text("MT-Fault-Message"),
        traceback=clues.text("MT-Fault-StackTrace"),
        failed_at=moment_of(clues.text("MT-Fault-Timestamp")),
        retries=clues.count("MT-Fault-RetryCount"),
        host=clues.text("MT-Host-MachineName"),
        queue=_queue_of(clues.text("MT-Fault-InputAddress")),
    )


def _queue_of(address: str | None) -> str | None:
    """Return the queue of an address such as `rabbitmq://host/vhost/queue?temporary=true`."""
    try:
        path = urlsplit(address or "").path
    except ValueError:
        return None
    return unquote(path.rpartition("/")[2]) or None


_REDELIVERIES = "MT-Redelivery-Count"
_IN_JSON = re.compile(rb'("MT-Redelivery-Count"\s*:\s*)(?:"[^"]*"|[0-9]+)')
_TAKE_OFF = of_headers(
    HeaderEdit(
        drop=frozenset({"MT-Reason", _REDELIVERIES}), drop_prefixes=("MT-Fault-", "MT-Host-")
    )
)


def _renew(delivery: Delivery) -> Delivery:
    """Remove the notes about failures, and reset the count of redeliveries in the envelope.

    MassTransit reads the count in the envelope, which repeats the header.

    Source: MassTransit 8.5.8, `GetRedeliveryCount`, EnvelopeMessageContext.cs and
    JsonMessageEnvelope.cs; its `_error` transport sends the body unchanged.
    """
    delivery = _TAKE_OFF(delivery)
    if _REDELIVERIES.encode() not in delivery.body:
        return delivery
    envelope = Clues(delivery).envelope
    noted = mapping_of(envelope.get("headers"))
    if _REDELIVERIES not in noted:
        return delivery
    if delivery.body.count(_REDELIVERIES.encode()) == 1:
        # Keep all other bytes: writing JSON numbers anew may change them.
        return replace(delivery, body=_IN_JSON.sub(rb"\g<1>0", delivery.body))
    return with_json(delivery, {**envelope, "headers": {**noted, _REDELIVERIES: 0}})


DIALECT = Dialect("masstransit", read, _renew)
