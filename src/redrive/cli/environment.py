"""The environment variables that stand for options, and what holds without either."""

import os

from redrive.errors import ConfigurationError
from redrive.redaction import KINDS_VARIABLE, redact_kinds_named

URL_VARIABLE = "REDRIVE_URL"
EXCHANGE_VARIABLE = "REDRIVE_EXCHANGE"
MANAGEMENT_VARIABLE = "REDRIVE_MANAGEMENT_URL"
INDEX_VARIABLE = "REDRIVE_INDEX"
INDEX_SIZE_VARIABLE = "REDRIVE_INDEX_MB"
JOURNAL_AGE_VARIABLE = "REDRIVE_JOURNAL_MAX_AGE"
JOURNAL_BODIES_VARIABLE = "REDRIVE_JOURNAL_BODIES"

DEFAULT_URL = "amqp://guest:guest@localhost:5672/"


def management_url_for(url: str, given: str | None, *, from_environment: bool) -> str | None:
    """Return where the management API of a broker is, as far as somebody said.

    `REDRIVE_MANAGEMENT_URL` goes with `REDRIVE_URL`: it does not stand for another broker that
    `--url` names, whose user and password would be sent to the wrong host.
    """
    of = os.environ.get(URL_VARIABLE)
    if given is None or not from_environment or not of:
        return given
    from redrive.pubsub.url import BrokerURL  # most commands that are only listed don't need it

    same = BrokerURL.parse(url).endpoints == BrokerURL.parse(of).endpoints
    return given if same else None


def redact_as_told() -> None:
    """Have what `REDRIVE_REDACT` names removed from all that this process says."""
    try:
        redact_kinds_named(os.environ.get(KINDS_VARIABLE, ""))
    except ValueError as error:
        raise ConfigurationError(
            f"{KINDS_VARIABLE}: {error}",
            f"Give kinds with commas between them: {KINDS_VARIABLE}=card,iban",
        ) from error
