"""The catalogue of the console's texts, as the marks in its modules and templates make it.

    .venv/bin/python tests/text_catalogue.py

writes it; `make texts` is the same.
"""

import io
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import write_po

import redrive

WEB = Path(redrive.__file__).parent / "web"
PLACE = WEB / "locale" / "redrive.pot"
_METHODS = [("**.py", "python"), ("templates/**.html", "jinja2.ext:babel_extract")]
_OPTIONS = {
    "templates/**.html": {
        "newstyle_gettext": "true",
        "trim_blocks": "true",
        "lstrip_blocks": "true",
        "silent": "false",
    }
}
_ABOUT_THE_FILE = tuple(
    f'"{name}:'
    for name in (
        "Generated-By",
        "Language-Team",
        "Last-Translator",
        "PO-Revision-Date",
        "POT-Creation-Date",
        "Project-Id-Version",
        "Report-Msgid-Bugs-To",
    )
)
_COMMENT = "# The texts of redrive's console. `make texts` writes this file."


def marked() -> Catalog:
    """All texts that are marked."""
    catalogue = Catalog(header_comment=_COMMENT, fuzzy=False)
    for file, _, text, _, context in extract_from_dir(str(WEB), _METHODS, _OPTIONS):
        catalogue.add(text, locations=[(Path(file).as_posix(), 0)], context=context)
    return catalogue


def written(catalogue: Catalog) -> str:
    """A catalogue as a file has it. Who wrote it when, and with what, is not in it: what says the
    same is the same."""
    file = io.BytesIO()
    write_po(file, catalogue, width=100, sort_by_file=True, include_lineno=False)
    lines = file.getvalue().decode().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(_ABOUT_THE_FILE))


if __name__ == "__main__":
    PLACE.write_text(written(marked()), encoding="utf-8")
