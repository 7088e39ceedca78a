"""What pages say, with a catalogue that says everything in brackets: what stands outside of them is
data, or a word of the engine's."""

import re
from collections.abc import Iterator
from gettext import NullTranslations

import pytest

from contract.support import Service
from page_texts import EXAMPLES, NAMES, PageTexts
from redrive.failures.cause_remark import CauseState, RemarkKind
from redrive.failures.columns import COLUMNS
from redrive.failures.job_record import State
from redrive.pubsub.reports import LookStage
from redrive.topology.doctor.act_rights import OperatorAct
from redrive.web.catalogue import catalogue
from redrive.web.console_settings import Permit
from redrive.web.reach import Login, Reach
from waiting import wait_until
from web.conftest import LOOKUP, QUEUE, SLOW, OpenConsole, Opens
from web.test_acting import begun, group_of, wait_for_end

ALL = LOOKUP + SLOW
WORDS: frozenset[str] = frozenset(
    (
        *NAMES,
        *CauseState,
        *State,
        *RemarkKind,
        *OperatorAct,
        *(act.capitalize() for act in OperatorAct),
        *Permit,
        *LookStage,
        # What an order says, from where a job was begun, and the kind of a file.
        *(
            "where",
            "group",
            "messages",
            "limit",
            "to",
            "via",
            "unchecked",
            "rate",
            "pace",
            "canary",
        ),
        *("stop at", "patch", "transform", "force"),
        "console",
        "parquet",
    )
)
"""Names, and words of the engine's, which the command line and addresses have as well."""
TYPED = EXAMPLES | {column.description for column in COLUMNS}
"""Examples, and what the engine says of the columns that can be typed."""
DATA = re.compile(
    r"""
    shop@orders(@failed)? | order\.paid | worker-1 | socks | the\ first | soon | 2\.3\.1
    | (builtins\.)?(KeyError|TimeoutError) | shop/orders\.py\ in\ price_of | after\ (\d+|<n>)\ s
    | (sku|slow)-\d+ | amqp://\S+ | \b[0-9a-f]{8,12}(-[0-9a-f]+)*\b
    | shop_orders-\w+\.parquet | \S+@\S+(\ as\ guest)? | failure_id | message_id | delivery_mode
    | \d{4}-\d\d-\d\dT[\d:.+]+ | \b(UTC|B|KiB|MiB)\b
    """,
    re.VERBOSE,
)
"""What messages, brokers and people say, and ids."""


VALUES = re.compile(
    r"""(?sx)
    <ol\ class="way">.*?</ol> | <span\ class="(?:name|value)">.*?</span>
    | <td\ class="hint">.*?</td>
    """
)
"""Where messages alone have a say: their way, which the engine tells, the names in their bodies,
and the values and types of their headers."""


class Bracketed(NullTranslations):
    """Says everything in brackets."""

    def gettext(self, message: str) -> str:
        return f"⟦{message}⟧"

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        return f"⟦{msgid1 if n == 1 else msgid2}⟧"


@pytest.fixture(autouse=True)
def brackets() -> Iterator[None]:
    with catalogue(Bracketed()):
        yield


def outside(page: str) -> list[str]:
    """What a page says outside of brackets, but for data and words of the engine's."""
    found = PageTexts(VALUES.sub("", page))
    texts = "\n".join(found.texts)
    while texts != (texts := re.sub("⟦[^⟦⟧]*⟧", "", texts)):
        pass
    attributes = [re.sub("⟦.*⟧", "", one) for one in found.attributes]
    lines = {one.strip() for one in (*texts.split("\n"), *attributes)} - TYPED
    left = {DATA.sub("", one).strip(" 0123456789·›–-;:,.()[]×…'") for one in lines}
    return sorted(one for one in left - WORDS if re.search("[A-Za-z]", one))


def said_outside(console: OpenConsole, pages: dict[str, dict[str, str]]) -> dict[str, list[str]]:
    """The same of pages, by their addresses."""
    found = {}
    for path, asked in pages.items():
        answer = console.get(path.partition(" ")[0], **asked)
        assert "⟦" in answer.text, path
        found[path] = outside(answer.text)
    return {path: texts for path, texts in found.items() if texts}


def test_pages_of_what_has_failed_say_nothing_outside_of_the_catalogue(
    opens: Opens, service: Service
) -> None:
    console = opens(*Permit)
    here = {"queue": QUEUE}
    wait_until(lambda: "Not looked at yet" in console.get("/").text, "the broker counts them")
    unseen = said_outside(console, {"/": {}, "/causes": here, "/message": {**here, "id": "x"}})
    assert unseen == {}
    console.look()
    group = group_of(console, "KeyError")
    said = {"group": group, "state": "fixed", "fixed_in": "2.3.1", "note": "soon", "back": "/"}
    assert console.post("/remark", kind="state", **said).status_code == 303
    assert console.post("/ask", **here, planned=str(ALL), reason="soon").status_code == 303
    message = {**here, "id": "sku-3"}
    where = "host = 'worker-1' AND retries = 0"
    assert (
        said_outside(
            console,
            {
                "/": {},
                "/ found": {"word": "timeout"},
                "/ not found": {"word": "no such word"},
                "/causes": here,
                "/causes filtered": {**here, "where": where},
                "/causes of a state": {**here, "state": "muted"},
                "/causes without any": {**here, "where": "retries = 77"},
                "/cause": {**here, "group": group, "by": "$.id"},
                "/cause filtered": {
                    **here,
                    "group": group,
                    "where": where,
                    "by": "header:x-version",
                },
                "/message": message,
                "/message as text": {**message, "view": "text"},
                "/message byte for byte": {**message, "view": "hex"},
                "/edit": message,
                "/query": {},
                "/query answered": {**here, "sql": "select failure_id from failed"},
                "/plan": here,
                "/plan with a patch": {**here, "patch": '{"id": "x"}', "where": where},
                "/plan of nothing": {**here, "where": "retries = 77"},
                "/plan that is none": {**here, "canary": "x"},
                "/discard": here,
                "/discard of nothing": {**here, "where": "retries = 77"},
                "/expire": {**here, "older_than": "0s"},
                "/expire of nothing": here,
                "/journal": {},
                "/journal without any": {"word": "no such word"},
                "/store": {},
                "/me": {},
                "/nothing": {},
            },
        )
        == {}
    )


def test_pages_of_what_was_done_say_nothing_outside_of_the_catalogue(
    opens: Opens, service: Service
) -> None:
    console = opens(*Permit)
    here = {"queue": QUEUE}
    console.look()
    assert console.post("/ask", **here, planned=str(ALL), reason="soon").status_code == 303
    with console.server.console.desk.worker.journal() as journal:
        waiting = journal.jobs()[0].id
    assert console.post("/store/copy", **here).status_code == 303
    store = console.server.console.desk.store
    wait_until(lambda: store.work is not None and store.work.has_ended, "it is copied")
    slowly = {"planned": str(ALL), "reason": "soon", "canary": "0", "stop_at": "100", "rate": "5"}
    id_ = begun(console, **slowly)
    beginning = said_outside(console, {"/job": {"id": id_}, "/": {}})
    assert beginning == {}
    wait_for_end(console, id_)
    file = store.files()[0].name
    found = said_outside(
        console,
        {
            "/job": {"id": id_},
            "/job that waits": {"id": waiting},
            "/proof": {"id": id_},
            "/journal": {},
            "/store": {},
            "/store of a file": {"name": file},
            "/cause that is gone": {**here, "group": "0123456789ab"},
        },
    )
    assert found == {}


def test_a_console_that_only_reads_says_so_by_the_catalogue(opens: Opens, service: Service) -> None:
    console = opens(hide_bodies=True)
    console.look()
    here = {"queue": QUEUE}
    message = {**here, "id": "sku-3"}
    pages = {"/plan": here, "/discard": here, "/expire": here, "/store": {}, "/me": {}}
    assert said_outside(console, {**pages, "/message": message, "/edit": message}) == {}


def test_whoever_is_not_let_in_is_told_by_the_catalogue(opens: Opens) -> None:
    console = opens(reach=Reach(login=Login.BROKER))
    assert said_outside(console, {"/login": {}}) == {}
    answer = console.post("/login", user="nobody", password="wrong")
    assert "⟦The broker lets nobody in" in answer.text
    assert outside(answer.text) == []
    refused = console.client.get("/", headers={"host": "elsewhere"})
    assert "⟦this console does not answer to elsewhere⟧" in refused.text
    assert outside(refused.text) == []


def test_what_stands_outside_of_brackets_is_found() -> None:
    assert outside("<p>⟦a <b>7</b>⟧ KeyError UTC <code>x</code></p>") == []
    assert outside("<p>⟦a⟧ and <b title='b'>more</b></p>") == ["and", "b", "more"]
