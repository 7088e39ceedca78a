"""How much an answer to a query may be."""

from typing import NamedTuple


class AnswerLimits(NamedTuple):
    """How much an answer to a query may be.

    Args:
        rows: the most rows.
        size: the most bytes, as JSON.
    """

    rows: int
    size: int
