"""Environment variables that stand in for options, and the defaults of both."""

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
    """Return the URL of a broker's management API, if it was given.

    `REDRIVE_MANAGEMENT_URL` belongs to `REDRIVE_URL`. It is ignored if `--url` names another
    broker, whose user and password would otherwise go to the wrong host.
    """
    of = os.environ.get(URL_VARIABLE)
    if given is None or not from_environment or not of:
        return given
    from redrive.pubsub.url import BrokerURL  # here: listing commands doesn't need it

    same = BrokerURL.parse(url).endpoints == BrokerURL.parse(of).endpoints
    return given if same else None


def redact_as_told() -> None:
    """Redact the kinds of data that `REDRIVE_REDACT` names from all output of this process."""
    try:
        redact_kinds_named(os.environ.get(KINDS_VARIABLE, ""))
    except ValueError as error:
        raise ConfigurationError(
            f"{KINDS_VARIABLE}: {error}",
            f"Give kinds separated by commas: {KINDS_VARIABLE}=card,iban",
        ) from error
