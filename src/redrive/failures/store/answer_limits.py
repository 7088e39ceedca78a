"""Limits on the size of a query's answer."""

from typing import NamedTuple


class AnswerLimits(NamedTuple):
    """Limits on the size of a query's answer.

    Args:
        rows: the maximum number of rows.
        size: the maximum number of bytes, as JSON.
    """

    rows: int
    size: int
