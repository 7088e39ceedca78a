"""The texts of a page: what people read or hear of it, but for code."""

from html.parser import HTMLParser

NAMES = frozenset(("redrive", "UTC", "CSV", "JSON", "Parquet"))
"""What is the same in every language."""
EXAMPLES = frozenset(
    (
        "$.country",
        "host, $.country, header:x-version",
        "error_type = 'KeyError' and retries > 2",
        '{"currency": "EUR"}',
    )
)
"""Examples of what can be typed."""
ATTRIBUTES = frozenset(
    (
        "alt",
        "aria-label",
        "placeholder",
        "title",
        # What the script says.
        "data-copied",
        "data-copy",
        "data-many",
        "data-news",
        "data-select",
    )
)
_CODE = frozenset(("code", "kbd", "pre", "textarea"))


class PageTexts(HTMLParser):
    """Reads the texts of a page.

    Args:
        page: its HTML.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        """What stands between tags; what is code, or a name or a command in it, is left out."""
        self.attributes: list[str] = []
        """What stands in attributes that people read or hear."""
        self._code = 0
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._code += tag in _CODE
        self.attributes += [value for name, value in attributes if name in ATTRIBUTES and value]

    def handle_endtag(self, tag: str) -> None:
        self._code -= tag in _CODE

    def handle_data(self, data: str) -> None:
        if not self._code and data.strip():
            self.texts.append(data)
