"""Makes text fit for people to read: without secrets, and without control characters.

Errors, log lines and failure headers all pass through `redact`, so that a URL with a password in it may stand in any of them.
What messages hold comes from anywhere: `printable` and `in_one_line` take out what would steer a terminal or forge a log line.
"""

import re
import unicodedata

# A password may hold anything but white space and a slash, an @ included. Anchored at "://", so that a long text costs one pass.
_USERINFO = re.compile(r"://(?P<user>[^\s:/@]*):(?P<secret>[^\s/]*)@")
_SECRETS = "password|passwd|pwd|token|secret|access_token|api_key|apikey|signature|sig"
_QUERY = re.compile(rf"(?P<name>[?&](?:{_SECRETS})=)[^&\s'\"]+", re.IGNORECASE)


def redact(text: str) -> str:
    """`text` with the password of every URL in it, and every secret in a query, replaced by `***`."""
    if "://" not in text and "=" not in text:
        return text
    return _USERINFO.sub(r"://\g<user>:***@", _QUERY.sub(r"\g<name>***", text))


def printable(text: str) -> str:
    """`text` with every character that would steer a terminal written as an escape; line breaks and tabs stay."""
    return "".join(
        character if character in "\n\t" or unicodedata.category(character)[0] != "C" else _escaped(character) for character in text
    )


def in_one_line(text: str) -> str:
    """`text` as one line of printable characters."""
    return printable(" ".join(text.split()))


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
