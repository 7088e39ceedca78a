"""Groups of failures: what differs from message to message is left out, what tells causes apart is
not."""

from dataclasses import replace

import pydantic
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import error_texts
from deliveries import failed, table
from redrive.failures.message.cause import (
    Cause,
    TracebackPart,
    cause_of,
    frame_of,
    masked,
    parts_of,
)
from redrive.failures.message.failed_message import FailedMessage

OWN = '  File "/srv/app/shop/orders.py", line 3, in charge\n    pay()\n'
LIBRARY = (
    '  File "/srv/venv/lib/python3.11/site-packages/httpx/_client.py", line 9, in send\n    raise\n'
)
STANDARD = '  File "/usr/lib/python3.11/json/decoder.py", line 337, in decode\n    raise\n'
REDRIVE = '  File "/opt/redrive/pubsub/codec.py", line 3, in _validated\n    raise\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no plan for 'gold'", "no plan for '…'"),
        ('no plan for "gold", nor `silver`', "no plan for '…', nor '…'"),
        ("user 17 has 3.50 of -1,000", "user <n> has <n> of <n>"),
        ("order-17 is gone", "order-<n> is gone"),
        ("no 0b6f9c1e-6a9c-4a55-8c3e-2f1f8f4f5a10 here", "no <id> here"),
        ("commit deadbeef01 of 01ARZ3NDEKTSV4RRFFQ69G5FAV", "commit <id> of <id>"),
        ("<Order object at 0x7f3a10>", "<Order object at <id>>"),
        ("late since 2024-05-17T08:30:15.250Z", "late since <time>"),
        ("it can't be what it isn't", "it can't be what it isn't"),
        ("  two\n lines ", "two lines"),
        ("", ""),
    ],
)
def test_what_differs_between_messages_is_masked(text: str, expected: str) -> None:
    assert masked(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mail of anna.smith+x@shop.example", "mail of <mail>"),
        ("no queue shop@orders", "no queue shop@orders"),
        ("payments-7d9c6b5f4-x2x9k is gone", "payments-<pod> is gone"),
        ("mailer-x2x9k is gone", "mailer-<pod> is gone"),
        (
            "/tmp/upload-x8Jk2p/in.csv, /tmp/tmpa8x2k1qz",
            "/tmp/upload-<tmp>/in.csv, /tmp/<tmp>",
        ),
        ("/home/anna/x and C:\\Users\\bob\\x", "/home/<user>/x and C:\\Users\\<user>\\x"),
        ("no arn:aws:iam::123456789012:user/anna here", "no <arn> here"),
        ("to fe80::1ff:fe23:4567:890a or 10.0.0.1 or [::1]:80", "to <n> or <n> or <n>:<n>"),
        ("host 00:1A:2B:3C:4D:5E", "host <id>"),
        ("after 1m30s, 45.1s or 250ms", "after <n>s, <n>s or <n>s"),
        ("at Thu, 26 Nov 2026 20:00:01 GMT", "at <time>"),
        ("at 26/Nov/2026:10:00:01 +0000", "at <time>"),
        ("we may 5 times, Mayor 2", "we may <n> times, Mayor <n>"),
        ("Key (email)=(anna) exists", "Key (email)=(…) exists"),
        ("of type `java.time.Instant`, not `gold`", "of type `java.time.Instant`, not '…'"),
        ("status code 503, HTTP/1.1 404", "status code 503, HTTP/1.1 404"),
        ("[Errno 111], ORA-00942", "[Errno 111], ORA-00942"),
        ("SQLSTATE[23000], E11000, code 17", "SQLSTATE[23000], E11000, code 17"),
        ("token eyJhbGciOiJSUzI1NiIsImtpZCI6Im91cnMifQ of x8Jk2p", "token <id> of <id>"),
    ],
)
def test_what_differs_between_hosts_and_runs_is_masked_and_codes_stay(
    text: str, expected: str
) -> None:
    assert masked(text) == expected


def test_of_error_texts_of_drivers_and_frameworks_causes_are_told_apart() -> None:
    rates, wrong = error_texts.measure()
    assert min(rates) >= 0.97, wrong


@pytest.mark.parametrize(
    "word",
    ["deadline", "internationalisation", "ConnectionRefusedError", "facade", "effaced-decade"],
)
def test_words_are_not_masked(word: str) -> None:
    assert masked(word) == word


@given(st.integers(), st.integers(), st.uuids(), st.uuids())
def test_messages_that_differ_in_numbers_and_ids_are_of_one_group(
    one: int, other: int, id_: object, other_id: object
) -> None:
    assert masked(f"order {one} of {id_} failed") == masked(f"order {other} of {other_id} failed")


@pytest.mark.parametrize("before", ["stock-", "stock-20261128-", "stock_", "#", "v1.", "/orders/"])
@given(st.integers(0, 10**12))
@example(45678)
def test_a_number_in_a_name_makes_no_other_group(before: str, number: int) -> None:
    assert masked(f"{before}{number} is gone") == masked(f"{before}1 is gone")


@given(st.text())
def test_any_text_can_be_masked_and_is_one_line(text: str) -> None:
    assert len(masked(text).splitlines()) <= 1


@pytest.mark.parametrize(
    ("traceback", "expected"),
    [
        (OWN, "shop/orders.py in charge"),
        (OWN + LIBRARY, "shop/orders.py in charge"),
        (OWN + STANDARD + REDRIVE, "shop/orders.py in charge"),
        (LIBRARY, ""),
        ("", ""),
        ("no traceback at all", ""),
        ('  File "C:\\app\\shop\\orders.py", line 3, in charge\n', "shop/orders.py in charge"),
        ('  File "orders.py", line 3, in <module>\n', "orders.py in <module>"),
        (
            f"{OWN}\nThe above exception was the direct cause of …\n\n"
            + OWN.replace("charge", "buy"),
            "shop/orders.py in buy",
        ),
    ],
)
def test_the_frame_is_the_innermost_of_the_service(traceback: str, expected: str) -> None:
    assert frame_of(traceback) == expected


def _message(error_type: str, error_message: str, traceback: str = OWN) -> FailedMessage:
    return FailedMessage(
        failed(
            table(
                redrive_error_type=error_type,
                redrive_error_message=error_message,
                redrive_error_traceback=traceback,
            )
        )
    )


def test_a_cause_is_type_masked_message_and_frame() -> None:
    cause = cause_of(_message("shop.OutOfStock", "no more socks in size 42"))
    assert cause == Cause(
        "shop.OutOfStock", "no more socks in size <n>", "shop/orders.py in charge"
    )


def test_the_line_of_the_frame_makes_no_other_group() -> None:
    assert (
        cause_of(_message("E", "m", OWN)).group_id
        == cause_of(_message("E", "m", OWN.replace("line 3", "line 4"))).group_id
    )


def test_type_message_and_frame_make_other_groups() -> None:
    messages = [
        _message("E", "m"),
        _message("F", "m"),
        _message("E", "n"),
        _message("E", "m", OWN.replace("charge", "buy")),
    ]
    assert len({cause_of(message).group_id for message in messages}) == 4


def test_a_group_has_the_same_id_on_every_machine_and_in_every_version() -> None:
    assert (
        Cause("shop.OutOfStock", "no more socks in size <n>", "shop/orders.py in charge").group_id
        == "f1049e45c345"
    )


def test_where_no_error_is_known_the_queue_and_the_task_tell_causes_apart() -> None:
    plain = failed()
    by_type = replace(plain, properties=plain.properties._replace(type="shop.Paid"))
    task = failed(table(task="shop.tasks.charge"))
    elsewhere = replace(plain, queue="ucenter@mail")
    assert [cause_of(FailedMessage(one)).frame for one in (plain, by_type, task, elsewhere)] == [
        "ucenter@user",
        "shop.Paid in ucenter@user",
        "shop.tasks.charge in ucenter@user",
        "ucenter@mail",
    ]
    assert cause_of(FailedMessage(plain)).what.startswith("no error recorded")


# --- validation errors ----------------------------------------------------------------------------


class Line(pydantic.BaseModel):
    """A line of an order."""

    sku: str
    qty: int


class Order(pydantic.BaseModel):
    """An order with lines."""

    id: int
    lines: list[Line]

    @pydantic.model_validator(mode="after")
    def not_empty(self) -> "Order":
        if not self.lines:
            raise ValueError(f"order {self.id} is empty")
        return self


def refused(body: object) -> str:
    """What pydantic says of a body that is no order."""
    with pytest.raises(pydantic.ValidationError) as raised:
        Order.model_validate(body)
    return str(raised.value)


def bad_lines(count: int) -> list[dict[str, str]]:
    return [{"qty": f"{number} pieces\nid\nof 'some'"} for number in range(count)]


def test_a_validation_error_is_its_model_and_the_fields_that_are_wrong() -> None:
    assert (
        masked(refused({"id": "x", "lines": bad_lines(3)}))
        == "not valid as Order: id, lines.qty, lines.sku"
    )


def test_how_many_values_are_wrong_makes_no_other_group() -> None:
    texts = {
        masked(refused({"id": 1, "lines": [{"sku": "a", "qty": 1}] * good + bad_lines(bad)}))
        for good in (0, 9)
        for bad in (1, 2, 100)
    }
    assert texts == {"not valid as Order: lines.qty, lines.sku"}


def test_what_is_wrong_with_the_whole_is_said() -> None:
    assert (
        masked(refused({"id": 17, "lines": []}))
        == "not valid as Order: Value error, order <n> is empty"
    )


def test_an_invalid_message_of_redrive_is_grouped_alike() -> None:
    texts = [
        "1 problem(s) in the body as Order: lines.0.qty: Input should be a valid integer",
        "3 problem(s) in the body as Order: "
        + "; ".join(
            f"lines.{number}.qty: Input should be a valid integer" for number in (4, 17, 99)
        ),
    ]
    assert {masked(text) for text in texts} == {"not valid as Order: lines.qty"}
    assert masked("1 problem(s) in the body as list[Order]: Input should be a valid list") == (
        "not valid as list[Order]: Input should be a valid list"
    )


def test_pydantic_1_is_grouped_alike() -> None:
    text = (
        "2 validation errors for Order\nid\n  field required (type=value_error.missing)\nlines "
        "-> 3 -> qty\n  value is not a valid integer"
    )
    assert masked(text) == "not valid as Order: id, lines.qty"


@given(st.text(), st.integers(0, 99))
def test_any_validation_error_is_one_line(text: str, number: int) -> None:
    for head in (
        f"{number} validation errors for {text}\n",
        f"{number} problem(s) in the body as {text}: ",
    ):
        assert len(masked(head + text).splitlines()) <= 1


@pytest.mark.parametrize(
    ("text", "group_id"),
    [
        ("no plan for 'gold'", "51edaeb4fdd3"),
        ("order 17 timed out after 30 s", "e697f10a0a07"),
        ("3 validation errors occurred", "93575c26ab68"),
        ("1 validation error", "58c1d4a3c6a8"),
        ("2 problem(s) in the body", "9ce0588cb873"),
        (
            (
                "UNIQUE constraint failed: orders.id\n[SQL: INSERT INTO orders (id) VALUES "
                "(?)]\n[parameters: (17,)]"
            ),
            "e8f557eeecfe",
        ),
        ("the body is not JSON: Expecting value: line 1 column 1 (char 0)", "31a662da8c30"),
        ("x" * 3000, "967c70c6810c"),
    ],
)
def test_groups_that_people_wrote_down_keep_their_ids(text: str, group_id: str) -> None:
    assert Cause("E", masked(text), "").group_id == group_id


# --- a traceback in its parts ---------------------------------------------------------------------


def test_frames_of_libraries_that_follow_each_other_are_one_part() -> None:
    text = f"Traceback (most recent call last):\n{LIBRARY}{STANDARD}{OWN}{LIBRARY}OSError: no route"
    assert parts_of(text) == [
        TracebackPart("Traceback (most recent call last):", 0),
        TracebackPart(f"{LIBRARY}{STANDARD}".rstrip("\n"), 2),
        TracebackPart(OWN.rstrip("\n"), 0),
        TracebackPart(LIBRARY.rstrip("\n"), 1),
        TracebackPart("OSError: no route", 0),
    ]


def test_a_traceback_of_another_language_is_one_part() -> None:
    text = "java.lang.IllegalStateException: no\n\tat shop.Orders.charge(Orders.java:3)"
    assert parts_of(text) == [TracebackPart(text, 0)]


@given(st.text(alphabet='\n Ftile"/,in0site-packages'))
def test_no_line_of_a_traceback_is_lost(text: str) -> None:
    lines = [line for part in parts_of(text) for line in part.text.split("\n")]
    assert lines == text.splitlines()


def test_a_cause_is_told_without_the_module_of_its_error() -> None:
    cause = Cause("shop.Errors.Bad", "no <n>", "shop/orders.py in price_of")
    assert cause.what == "Bad: no <n>"
    assert cause.in_words == "Bad: no <n> (shop/orders.py in price_of)"
    assert Cause("", "", "").in_words == "no error recorded (failed in a service without redrive)"
