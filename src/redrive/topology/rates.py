"""Rates as Python code and the command line give them."""

import math
import re

from redrive.errors import ConfigurationError

Rate = float | str
"""Messages per second, or a text such as `10/s`, `30/m` or `500/h`."""

_RATE = re.compile(r"(?P<number>[0-9]{1,12}(?:\.[0-9]{1,12})?)(?:/(?P<unit>s|m|h))?")
_A_SECOND = {"s": 1.0, "m": 1 / 60, "h": 1 / 3600}


def rate_of(value: Rate) -> float:
    """Convert a value to messages per second."""
    rate = 0.0
    if isinstance(value, str):
        found = _RATE.fullmatch(value)
        rate = float(found["number"]) * _A_SECOND[found["unit"] or "s"] if found else 0.0
    elif isinstance(value, int | float) and not isinstance(value, bool):
        rate = float(value)
    if not (rate > 0 and math.isfinite(rate)):
        raise ConfigurationError(
            f"the rate {value!r:.200} can't be read",
            "Give messages a second, a minute or an hour: 200/s, 30/m, 500/h.",
        )
    return rate


def format_rate(rate: float) -> str:
    """Format messages per second as `rate_of` reads them."""
    for unit, seconds in (("s", 1), ("m", 60)):
        if rate * seconds >= 1:
            return f"{round(rate * seconds, 3):g}/{unit}"
    return f"{round(rate * 3600, 3):g}/h"
