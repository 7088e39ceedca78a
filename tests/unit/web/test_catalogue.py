"""The catalogue of the console's texts: it has all of them, and pages speak by it."""

import re
from collections.abc import Iterator
from gettext import NullTranslations
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po
from jinja2 import nodes
from markupsafe import Markup

from page_texts import EXAMPLES, NAMES, PageTexts
from redrive.web.catalogue import catalogue, gettext, language, ngettext
from redrive.web.gate import Refusal
from redrive.web.html import age_in_words, environment, page
from text_catalogue import PLACE, WEB, marked

TEMPLATES = sorted((WEB / "templates").glob("*.html"))


class Loud(NullTranslations):
    """A catalogue that says everything in capitals but the names of places."""

    def gettext(self, message: str) -> str:
        return re.sub(r"%\(\w+\)s|[^%]+", lambda one: _loud(one[0]), message)

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        return self.gettext(msgid1 if n == 1 else msgid2)


def _loud(part: str) -> str:
    return part if part.startswith("%(") else part.upper()


def unmarked(source: str) -> list[str]:
    """The texts of a template that stand outside of all marks."""
    found = PageTexts("".join(_said(environment().parse(source))))
    texts = [text.strip(" \n·›–;:,.()×…") for text in (*found.texts, *found.attributes)]
    return [text for text in texts if re.search("[A-Za-z]", text) and text not in NAMES | EXAMPLES]


def _said(node: nodes.Node) -> Iterator[str]:
    """What a template says by itself, in the order in which it does. What it is given to say, and
    what is marked, is left out."""
    match node:
        case nodes.TemplateData():
            yield node.data
        case nodes.Const():
            yield node.value if isinstance(node.value, str) else ""
        case nodes.If():
            for one in (*node.body, *node.elif_, *node.else_):
                yield from _said(one)
        case nodes.For():
            for one in (*node.body, *node.else_):
                yield from _said(one)
        case nodes.CondExpr():
            yield from _said(node.expr1)
            yield from () if node.expr2 is None else _said(node.expr2)
        case nodes.Filter():
            yield from () if node.node is None else _said(node.node)
        case nodes.Macro():
            for one in node.body:
                yield from _said(one)
        case nodes.AssignBlock():
            for one in node.body:
                yield from _said(one)
        case nodes.Call() | nodes.Getattr() | nodes.Getitem() | nodes.Assign() | nodes.Compare():
            return
        case nodes.Extends() | nodes.Include() | nodes.FromImport() | nodes.Import():
            return
        case _:
            for one in node.iter_child_nodes():
                yield from _said(one)


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.stem)
def test_a_template_says_nothing_without_a_mark(template: Path) -> None:
    assert unmarked(template.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "<p>Hello</p>",
        "<p>{% if x %}Hello{% endif %}</p>",
        "<p>{{ 'these' if x else 'all' }}</p>",
        "<p>{{ x or ('none'|upper) }}</p>",
        "<p>{{ 'in ' ~ x }}</p>",
        "{% macro one() %}<b title='Hello'></b>{% endmacro %}",
        "{% for x in y %}{{ x }} more{% endfor %}",
        "<input placeholder='Name'>",
        "<p>{% set x %}Hello{% endset %}{{ _('a') }}</p>",
        "<p>{% trans %}a{% endtrans %} and more</p>",
    ],
)
def test_a_text_without_a_mark_is_found_wherever_it_stands(source: str) -> None:
    assert unmarked(source)


def places_of(texts: Catalog) -> dict[object, set[str]]:
    """The files that a text of a catalogue is of, by the text."""
    return {one.id: {file for file, _ in one.locations} for one in texts if one.id}


def test_the_catalogue_has_what_is_marked() -> None:
    with PLACE.open("rb") as file:
        kept = read_po(file)
    assert places_of(kept) == places_of(marked()), "the catalogue is not up to date: run make texts"


def test_the_catalogue_has_texts_of_templates_and_of_modules_and_how_they_count() -> None:
    found = {one.id for one in marked()}
    assert "Plan a requeue" in found
    assert "no reason is given" in found
    assert ("%(num)s message", "%(num)s messages") in found


def test_no_text_is_put_together_before_it_is_looked_up() -> None:
    """Such a text is in no catalogue, though it is marked."""
    calls = re.compile(r'\b(?:gettext|ngettext)\(\s*(?!\s|text\b|one\b|")(.{0,60})')
    found = {
        f"{path.name}: {one}"
        for path in WEB.glob("*.py")
        for one in calls.findall(path.read_text(encoding="utf-8"))
        if path.name != "catalogue.py"
    }
    assert found == set()


def test_the_script_has_its_words_from_the_page() -> None:
    script = (WEB / "static" / "console.js").read_text(encoding="utf-8")
    said = re.findall(r'(?:textContent = |setAttribute\("aria-label", )([^;]*);', script)
    assert len(said) >= 5
    for one in said:
        strings = re.findall(r'"[^"]*"|`[^`]*`', one)
        assert not re.search("[A-Za-z]", "".join(strings)), one


def test_a_text_has_its_values_and_a_number_its_form() -> None:
    assert gettext("Job %(id)s", id="7") == "Job 7"
    assert gettext("100%%") == "100%"
    assert ngettext("%(num)s message", "%(num)s messages", 1) == "1 message"
    assert ngettext("%(num)s message", "%(num)s messages", 1200) == "1,200 messages"
    assert language() == "en"


def test_pages_and_words_speak_by_the_catalogue_that_is_given_and_no_longer() -> None:
    refusal = Refusal(403, "x", "y")
    with catalogue(Loud()):
        assert b"NOT LET IN" in bytes(page("refused", {"refusal": refusal}).body)
        assert age_in_words(None) == "AT AN UNKNOWN TIME"
        assert ngettext("%(num)s message", "%(num)s messages", 2) == "2 MESSAGES"
    assert b"Not let in" in bytes(page("refused", {"refusal": refusal}).body)


@pytest.mark.parametrize(
    "template",
    [
        "{% trans name=x %}a {{ name }}{% endtrans %}",
        "{% trans num=1, name=x %}a {{ name }}{% pluralize %}as {{ name }}{% endtrans %}",
        "{{ _('a %(name)s', name=x) }}",
        "{{ ngettext('a %(name)s', 'as %(name)s', 1, name=x) }}",
    ],
)
def test_what_is_put_into_a_text_is_text_without_what_steers_or_hides(template: str) -> None:
    shown = environment().from_string(template).render(x="<b>\u202e\x1b\udcff%(num)s")
    assert shown == "a &lt;b&gt;\\u202e\\x1b\\xff%(num)s"
    assert environment().from_string(template).render(x=Markup("<b>")) == "a <b>"
