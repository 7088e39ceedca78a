"""The blocks of Python on a page of the documentation, as somebody would paste them: only the
broker's address is another."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for pages in (
        ROOT.glob("*.md"),
        *((ROOT / folder).rglob("*.md") for folder in ("benchmarks", "docs", "examples")),
    )
    for page in pages
)
"""All pages that there are."""

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SECTION = re.compile(r"^## (.*)\n((?:(?!## ).*\n?)*)", re.MULTILINE)
_ADDRESS = re.compile(r'"amqp://[^"]*"')


def blocks_of(page: str) -> list[str]:
    """The blocks of Python on a page, from its top to its end."""
    return _BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def programs_of(page: str) -> dict[str, str]:
    """The blocks of a page whose sections have one program each, by the section's heading."""
    text = (ROOT / page).read_text(encoding="utf-8")
    programs = {
        heading: block
        for heading, section in _SECTION.findall(text)
        for block in _BLOCK.findall(section)
    }
    assert list(programs.values()) == blocks_of(page), f"a section of {page} has two programs"
    return programs


def addressed(block: str, url: str) -> str:
    """The block with this URL in the place of each that it has."""
    return _ADDRESS.sub(lambda _: repr(url), block)


def for_asyncio(program: str) -> str:
    """The program of an `App` with the changes that the page of recipes names for an `AsyncApp`."""
    program = re.sub(r"\bApp\b", "AsyncApp", program)
    program = re.sub(r"\bIterator\b", "AsyncIterator", program)
    program = "import asyncio\n" + program.replace("    app.run()", "    asyncio.run(app.run())")
    return re.sub(
        r"^(@app\.(?:middleware|subscriber)\b.*\n)def ",
        r"\1async def ",
        program,
        flags=re.MULTILINE,
    )
