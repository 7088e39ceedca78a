"""Failure notes of Moleculer's channels, for Node.js, with their AMQP adapter.

Source: @moleculer/channels 0.3.1, src/adapters/amqp.js, src/constants.js and src/utils.js. The
error is recorded since 0.3.0. The message's original headers are lost.
"""

from redrive.failures.message.dialects.clues import (
    Clues,
    bytes_of_base64,
    moment_of_milliseconds,
    text_of,
)
from redrive.failures.message.dialects.dialect import Dialect
from redrive.failures.message.dialects.failure_notes import FailureNotes
from redrive.failures.message.dialects.renewal import HeaderEdit, of_headers

_CHANNEL, _GROUP = "x-original-channel", "x-original-group"


def read(clues: Clues) -> FailureNotes | None:
    channel, group = clues.text(_CHANNEL), clues.text(_GROUP)
    if channel is None or group is None:
        return None
    return FailureNotes(
        "moleculer",
        error_type=clues.text("x-error-name"),
        error_message=clues.text("x-error-message"),
        traceback=text_of(bytes_of_base64(clues.text("x-error-stack"))),
        failed_at=moment_of_milliseconds(clues.text("x-error-timestamp")),
        queue=f"{group}.{channel}",
        exchange=channel,
        # A fanout exchange ignores the key.
        routing_key="",
    )


DIALECT = Dialect(
    "moleculer",
    read,
    of_headers(HeaderEdit(drop=frozenset({_CHANNEL, _GROUP}), drop_prefixes=("x-error-",))),
)
