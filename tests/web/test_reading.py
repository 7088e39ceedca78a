"""The pages that read: what they say, and that they touch no queue."""

import csv
import io
import json
import re
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import duckdb
import pytest

from contract.plain import plain_channel
from contract.support import Service
from redrive import FailedQueue
from redrive.web.console_settings import Permit
from redrive.web.page_request import QueuePlace
from redrive.web.queue_states import QueueCounts, QueueStates
from waiting import wait_until
from web.conftest import LOOKUP, QUEUE, SLOW, Opens, fail, failure, publish

ALL = LOOKUP + SLOW


@pytest.fixture
def group_of(service: Service) -> dict[str, str]:
    """The group of each error, as the engine says it."""
    found = {}
    for group in FailedQueue(service.url, QUEUE).causes():
        found[group.key.error_type] = group.key.group_id  # type: ignore[union-attr]
    return found


def test_a_virtual_host_without_failures_is_all_quiet(opens: Opens) -> None:
    answer = opens().get("/")
    assert answer.status_code == 200
    assert "All quiet" in answer.text


def test_the_overview_offers_to_look_where_nobody_has_looked(
    opens: Opens, service: Service
) -> None:
    console = opens()
    wait_until(lambda: "Not scanned yet" in console.get("/").text, "the broker counts them")


def test_the_overview_has_the_causes_of_all_queues_once_they_were_looked_at(
    opens: Opens, service: Service
) -> None:
    console = opens()
    wait_until(lambda: "Not scanned yet" in console.get("/").text, "the broker counts them")
    assert console.post("/look-at-all").status_code == 303
    wait_until(lambda: "TimeoutError" in console.get("/").text, "the causes are there")
    assert "KeyError" in console.get("/").text


def test_a_word_finds_causes_and_queues_on_the_overview(opens: Opens, service: Service) -> None:
    console = opens()
    console.look()
    wait_until(lambda: "TimeoutError" in console.get("/").text, "the causes are there")
    by_error = console.get("/", word="timeout").text
    assert "TimeoutError" in by_error
    assert "KeyError" not in by_error
    by_queue = console.get("/", word="ORDERS").text
    assert "TimeoutError" in by_queue
    assert "KeyError" in by_queue
    assert "No causes or queues match." in console.get("/", word="no such").text


def test_a_page_of_a_queue_that_nobody_looked_at_says_so_and_looks_at_nothing(
    opens: Opens, service: Service
) -> None:
    answer = opens().get("/causes", queue=QUEUE)
    assert answer.status_code == 200
    assert "This queue has not been scanned yet" in answer.text
    assert FailedQueue(service.url, QUEUE).depth() == ALL


def test_a_queue_whose_look_is_out_of_date_keeps_its_place(opens: Opens, service: Service) -> None:
    console = opens()
    console.look()
    wait_until(lambda: "TimeoutError" in console.get("/").text, "the causes are there")
    look = console.server.console.context.looks.look_under_way(QueuePlace(QUEUE))
    assert look is not None
    assert look.ended_at is not None
    look.ended_at -= timedelta(minutes=1)
    fail(service, failure("late", "KeyError", "'late'"))  # a restore drops what is known
    page = console.get("/").text
    assert "TimeoutError" in page
    assert "scan the queue again" in page
    assert "out of date" in page
    group = next(iter(re.findall(r"group=([0-9a-f]{12})", page)))
    assert "is out of date" in console.get("/cause", queue=QUEUE, group=group).text


def test_a_link_to_a_cause_that_never_was_says_so(opens: Opens, service: Service) -> None:
    console = opens()
    unseen = console.get("/cause", queue=QUEUE, group="0123456789ab")
    assert (unseen.status_code, "Nothing is known of this cause" in unseen.text) == (409, True)
    console.look()
    seen = console.get("/cause", queue=QUEUE, group="0123456789ab")
    assert (seen.status_code, "nothing is known of it" in seen.text) == (404, True)


def test_a_link_has_a_title_with_its_numbers(
    opens: Opens, service: Service, group_of: dict[str, str]
) -> None:
    console = opens()
    console.look()
    cause = console.get("/cause", queue=QUEUE, group=group_of["KeyError"]).text
    assert f"<title>{LOOKUP} × KeyError" in cause
    assert f'<meta property="og:title" content="{LOOKUP} × KeyError' in cause
    assert '<meta property="og:description" content="shop@orders, shop/orders.py in' in cause


def test_single_messages_are_picked_for_a_plan(opens: Opens, service: Service) -> None:
    console = opens()
    console.look()
    picked = console.client.get(
        f"/plan?queue={quote(QUEUE)}&pick=sku-1&pick=sku-3&pick=it%27s"
    ).text
    assert "<strong>2 messages</strong>" in picked
    assert "failure_id IN" in picked


def test_a_long_error_is_cut_on_the_pages_that_list_it(opens: Opens, service: Service) -> None:
    long = "the address can not be found " * 300
    fail(service, failure("long", "BadAddress", long))
    console = opens()
    console.look()
    wait_until(lambda: "BadAddress" in console.get("/").text, "the causes are there")
    for path in ("/", "/causes"):
        page = console.get(path, queue=QUEUE).text
        assert page.count("the address can not be found") < 20


def test_the_causes_of_a_queue_are_there_with_their_counts(opens: Opens, service: Service) -> None:
    console = opens()
    console.look()
    text = console.get("/causes", queue=QUEUE).text
    assert f"{ALL} messages in 2 causes" in text
    assert f">{LOOKUP}</span>" in text
    assert "shop/orders.py in price_of" in text


def test_a_filter_is_of_the_filter_language_and_stands_in_the_address(
    opens: Opens, service: Service
) -> None:
    console = opens()
    console.look()
    text = console.get("/causes", queue=QUEUE, where="error_type = 'KeyError'").text
    assert f"{LOOKUP} messages in 1 cause match" in text
    assert "redrive failed groups shop@orders --where" in text


def test_a_filter_that_can_not_be_is_told_in_a_line_or_two(opens: Opens, service: Service) -> None:
    console = opens()
    console.look()
    answer = console.get("/causes", queue=QUEUE, where="error_type = ")
    assert answer.status_code == 400
    assert "Something went wrong" in answer.text


def test_what_is_shown_says_how_old_it_is_and_how_many_there_are_now(
    opens: Opens, service: Service
) -> None:
    console = opens()
    console.look()
    wait_until(
        lambda: "The queue has the same number now" in console.get("/causes", queue=QUEUE).text,
        "the broker counts them",
    )
    with plain_channel(service.url) as channel:
        channel.basic_publish("", f"{QUEUE}@failed", b"{}")
    wait_until(
        lambda: (
            f"The queue has {ALL + 1} now, 1 more than shown here, since"
            in console.get("/causes", queue=QUEUE).text
        ),
        "the broker counts one more, which nobody could follow",
    )
    assert f"{ALL} messages in 2 causes" in console.get("/causes", queue=QUEUE).text


def test_what_fails_is_on_the_page_without_another_look(opens: Opens, service: Service) -> None:
    console = opens()
    console.look()
    wait_until(
        lambda: "New failures appear automatically" in console.get("/causes", queue=QUEUE).text,
        "the console follows what fails",
    )
    publish(service, failure("new", "OSError", "disk full"))
    wait_until(
        lambda: f"{ALL + 1} messages in 3 causes" in console.get("/causes", queue=QUEUE).text,
        "the new failure is shown",
    )
    told = console.get("/live", queue=QUEUE, seen="").json()
    assert told["values"]["shown"] == str(ALL + 1)
    assert console.get("/live", queue=QUEUE, seen=told["seen"]).status_code in (200, 204)
    assert "disk full" in console.get("/message", queue=QUEUE, id="new").text


def test_a_cause_says_why_its_messages_are_one_and_which_they_are(
    opens: Opens, service: Service, group_of: dict[str, str]
) -> None:
    console = opens()
    console.look()
    text = console.get("/cause", queue=QUEUE, group=group_of["KeyError"]).text
    assert f"<strong>{LOOKUP} messages</strong>" in text
    assert "1 library frame" in text
    assert text.count("<tr data-row>") == LOOKUP


def test_a_cause_that_is_gone_is_said(opens: Opens, service: Service) -> None:
    console = opens()
    console.look()
    assert console.get("/cause", queue=QUEUE, group="0123456789ab").status_code == 404


def test_a_message_is_shown_with_its_way_its_headers_and_its_body(
    opens: Opens, service: Service
) -> None:
    console = opens()
    console.look()
    text = console.get("/message", queue=QUEUE, id="sku-3").text
    assert "set aside in shop@orders@failed by worker-1" in text
    assert "redrive-error-type" in text
    assert "socks" in text


@pytest.mark.parametrize(
    ("view", "shown"),
    [("tree", "&#34;socks&#34;"), ("text", "&#34;sku&#34;: "), ("hex", "7b 22 69 64 22")],
)
def test_a_body_is_shown_as_a_tree_as_text_or_byte_for_byte(
    opens: Opens, service: Service, view: str, shown: str
) -> None:
    console = opens()
    console.look()
    assert shown in console.get("/message", queue=QUEUE, id="sku-3", view=view).text


def test_a_body_is_downloaded_byte_for_byte_and_opened_by_no_browser(
    opens: Opens, service: Service
) -> None:
    console = opens()
    console.look()
    answer = console.get("/body", queue=QUEUE, id="sku-3")
    assert json.loads(answer.content)["id"] == "sku-3"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")


def test_where_bodies_are_hidden_none_is_kept_shown_given_or_asked_for(
    opens: Opens, service: Service, tmp_path: Path
) -> None:
    console = opens(hide_bodies=True)
    console.look()
    assert not [
        one for one in tmp_path.rglob("*") if one.is_file() and b"socks" in one.read_bytes()
    ]
    assert "sku-3" in console.get("/message", queue=QUEUE, id="sku-3").text
    page = console.get("/message", queue=QUEUE, id="sku-3").text
    assert "socks" not in page
    assert "This console hides bodies." in page
    assert "0 B" not in page
    assert console.get("/body", queue=QUEUE, id="sku-3").status_code == 400
    for sql in ("select body from failed", "select * from failed", "select failed from failed"):
        answer = console.get("/query", queue=QUEUE, sql=sql)
        assert answer.status_code == 400
        assert "socks" not in answer.text


@pytest.mark.parametrize("comes", ["looked at", "followed"])
def test_a_body_that_is_too_large_to_be_kept_is_in_the_way_of_nothing_else(
    opens: Opens, service: Service, comes: str
) -> None:
    console = opens(Permit.REQUEUE, Permit.EDIT)
    large = failure("large", "TooMuch", "it is too much", body=b'"' + b"x" * 100_000 + b'"')
    if comes == "looked at":
        fail(service, large)
        console.look()
    else:
        console.look()
        wait_until(
            lambda: "New failures appear" in console.get("/causes", queue=QUEUE).text, "it follows"
        )
        publish(service, large)
        wait_until(lambda: "TooMuch" in console.get("/causes", queue=QUEUE).text, "it is seen")
    text = console.get("/message", queue=QUEUE, id="large").text
    assert "Body, 98 KiB" in text
    assert "The body is too long to be kept here" in text
    assert "redrive failed show" in text
    group = re.search(r"group=([0-9a-f]{12})", text)
    assert group is not None
    page = console.get("/cause", queue=QUEUE, group=group[1])
    assert page.status_code == 200
    assert "98 KiB" in page.text
    plan = console.get("/plan", queue=QUEUE, group=group[1])
    assert plan.status_code == 200
    assert "it is too much" in plan.text
    for path, asked in (
        ("/body", {"id": "large"}),
        ("/edit", {"id": "large"}),
        ("/plan", {"group": group[1], "patch": '{"a": 1}'}),
    ):
        answer = console.get(path, queue=QUEUE, **asked)
        assert answer.status_code == 400
        assert "was not kept" in answer.text
        assert "command line" in answer.text


def test_a_query_is_answered_as_a_table_as_csv_and_as_json(opens: Opens, service: Service) -> None:
    console = opens()
    console.look()
    asked = {
        "queue": QUEUE,
        "sql": "select error_type, count(*) as n from failed group by all order by n",
    }
    assert "TimeoutError" in console.get("/query", **asked).text
    rows = list(csv.reader(io.StringIO(console.get("/query", **asked, format="csv").text)))
    assert rows == [["error_type", "n"], ["TimeoutError", str(SLOW)], ["KeyError", str(LOOKUP)]]
    assert console.get("/query", **asked, format="json").json()[1] == {
        "error_type": "KeyError",
        "n": LOOKUP,
    }


def test_a_query_is_answered_as_parquet_that_other_tools_read(
    opens: Opens, service: Service, tmp_path: Path
) -> None:
    console = opens()
    console.look()
    sql = "select error_type, count(*) as n from failed group by all order by n"
    answer = console.get("/query", queue=QUEUE, sql=sql, format="parquet")
    assert answer.headers["content-disposition"] == 'attachment; filename="answer.parquet"'
    file = tmp_path / "answer.parquet"
    file.write_bytes(answer.content)
    found = duckdb.execute("SELECT * FROM read_parquet($1)", [str(file)]).fetchall()
    assert found == [("TimeoutError", SLOW), ("KeyError", LOOKUP)]


def test_a_spreadsheet_takes_no_cell_for_a_formula(opens: Opens, service: Service) -> None:
    console = opens()
    console.look()
    sql = "select '=1+1' as formula, -1 as number from failed limit 1"
    text = console.get("/query", queue=QUEUE, sql=sql, format="csv").text
    assert '"\'=1+1","-1"' in text


def test_while_nobody_looks_no_page_counts_a_delivery(
    opens: Opens, service: Service, group_of: dict[str, str]
) -> None:
    console = opens(Permit.REQUEUE)
    console.look()
    before = deliveries(service)
    for path, asked in (
        ("/", {}),
        ("/causes", {"queue": QUEUE}),
        ("/cause", {"queue": QUEUE, "group": group_of["KeyError"]}),
        ("/message", {"queue": QUEUE, "id": "sku-3"}),
        ("/query", {"queue": QUEUE, "sql": "select count(*) from failed"}),
        ("/plan", {"queue": QUEUE, "group": group_of["KeyError"]}),
        ("/journal", {}),
    ):
        assert console.get(path, **asked).status_code == 200, path
    # The look that asks is the only one that was made since.
    assert deliveries(service) == [count + 1 for count in before]


def deliveries(service: Service) -> list[int]:
    """How often each message was delivered before, as the broker counts."""
    return [
        int(str(message.headers.get("x-delivery-count", 0)))
        for message in FailedQueue(service.url, QUEUE).browse()
    ]


def test_a_tab_that_follows_does_not_wait_for_the_management_api(
    opens: Opens, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = opens()
    console.look()
    context, place = console.server.console.context, QueuePlace(QUEUE)
    wait_until(lambda: context.queue_states.state(place, None).reading, "AMQP tells the depth")

    def counts(_: QueueStates) -> list[QueueCounts]:
        raise AssertionError("the management API was asked")

    monkeypatch.setattr(QueueStates, "counts", counts)
    told = console.get("/live", queue=QUEUE).json()["values"]
    assert (told["shown"], told["now"]) == (
        str(LOOKUP + SLOW),
        "The queue has the same number now.",
    )
