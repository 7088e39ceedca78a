"""The catalogue of the console's texts: whatever a page says in words of its own goes through here.

The texts stand in English where they are used, whole sentences with named places for what differs,
and each is marked: `gettext` and `ngettext` here, `_`, `ngettext` and `{% trans %}` in templates.
`locale/redrive.pot` lists them all; `make texts` writes it, and tests find a text without a mark.
So there is one list of what the console says, and each text says how it is counted.

What is not in it is not the console's: what messages, brokers and people say, and the words that
the command line and addresses have as well, such as states, acts, names of columns and the errors
of the engine.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from gettext import NullTranslations

_catalogue = NullTranslations()


def gettext(text: str, /, **values: object) -> str:
    """A text of the catalogue.

    Args:
        text: it, in English; `%(name)s` is a place in it, and `%%` a percent sign.
        values: what stands in its places.
    """
    return _catalogue.gettext(text) % values


def ngettext(one: str, many: str, num: int, /, **values: object) -> str:
    """A text of the catalogue that counts something.

    Args:
        one: it, for one.
        many: it, for any other number.
        num: how many; the place `%(num)s` has it, with commas.
        values: what stands in its other places.
    """
    return _catalogue.ngettext(one, many, num) % {"num": f"{num:,}", **values}


def language() -> str:
    """The language of the catalogue, as HTML names it."""
    return _catalogue.info().get("language", "en").replace("_", "-")


@contextmanager
def catalogue(given: NullTranslations) -> Iterator[None]:
    """Has all pages of this process speak by a catalogue, for as long as the block."""
    global _catalogue
    former, _catalogue = _catalogue, given
    try:
        yield
    finally:
        _catalogue = former
