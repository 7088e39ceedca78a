"""The blocks of Python on a page of the documentation, as somebody would paste them: only the
broker's address is another."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ["README.md", *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))]
"""The pages whose code is run; decision records and the pages for contributors have none."""

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ADDRESS = re.compile(r'"amqp://[^"]*"')


def blocks_of(page: str) -> list[str]:
    """The blocks of Python on a page, from its top to its end."""
    return _BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def addressed(block: str, url: str) -> str:
    """The block with this URL in the place of each that it has."""
    return _ADDRESS.sub(lambda _: repr(url), block)
