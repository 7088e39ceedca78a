"""The handler of a service with seven bugs, and the same after three of them were mended; children
of a rehearsal import it."""

from typing import Literal, cast

from redrive import GiveUp, Message

BUGS = 7
_MENDED = (0, 1, 2)


class Refused(Exception):
    """What the service's own code raises."""


def broken(message: Message) -> None:
    """Fails at every message, each time by one of seven bugs."""
    _bug(int(message.body) % BUGS)


def mended(message: Message) -> None:
    """The same after three of the bugs were mended."""
    bug = int(message.body) % BUGS
    if bug not in _MENDED:
        _bug(bug)


async def mended_async(message: Message) -> None:
    """The same for the async shell."""
    mended(message)


def _bug(number: int) -> None:
    order: dict[str, int] = {}
    match number:
        case 0:
            order["plan"]
        case 1:
            _charge(order)
        case 2:
            raise ValueError(f"order {number} of customer 'x'")
        case 3:
            raise Refused("no more socks")
        case 4:
            raise GiveUp("this order makes no sense")
        case 5:
            message_as_a_number = cast("Literal[0]", "seven")
            int(message_as_a_number)
        case _:
            raise ExceptionGroup("both", [Refused("twice"), ValueError("as well")])


def _charge(order: dict[str, int]) -> None:
    order["price"] / len(order)
