"""Attempts to bring a body's values into headers, traces and logs by a body that is not valid."""

import logging
import re
from collections.abc import Iterator
from typing import Annotated, Literal

import pydantic
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from contract.shells import Shell
from contract.support import Service, both_shells, retrying
from redrive import InvalidMessage, instrument, uninstrument
from redrive.amqp.properties import Properties
from redrive.pubsub.handler_error import traceback_of
from redrive.pubsub.handler_table import call_of
from redrive.pubsub.message import Message
from redrive.topology.headers import Delivery
from waiting import wait_until

CARD = "4111-1111-1111-1111"


class Card(pydantic.BaseModel):
    kind: Literal["card"]
    number: int


class Bank(pydantic.BaseModel):
    kind: Literal["bank"]
    iban: Annotated[str, pydantic.Field(pattern=r"^[A-Z]{2}\d+$", max_length=4)]


class Payment(pydantic.BaseModel):
    number: int
    at: pydantic.AwareDatetime
    address: pydantic.HttpUrl | None = None
    by: Annotated[Card | Bank, pydantic.Field(discriminator="kind")] | None = None
    tags: list[Literal["a", "b"]] = []
    id: pydantic.UUID4 | None = None


TOLD = re.compile(r"problem\(s\) in the body as|the body is not JSON")
BODIES = (
    f'{{"number": "{CARD}", "at": "{CARD}"}}',
    (
        f'{{"number": 1, "at": "2026-01-01T00:00:00Z", "address": "ftp://{CARD}", '
        f'"tags": ["{CARD}"], "id": "{CARD}"}}'
    ),
    f'{{"number": 1, "at": "2026-01-01T00:00:00Z", "by": {{"kind": "{CARD}"}}}}',
    f'{{"number": 1, "at": "2026-01-01T00:00:00Z", "by": {{"kind": "bank", "iban": "{CARD}"}}}}',
    f'{{"number": "{CARD}", ',
    f'"{CARD}"',
    f'{{"body": {{"number": "{CARD}"}}, "__id": "20260101000000-ab"}}',
)


def pay(payment: Payment) -> None:
    raise AssertionError(payment)


def read(text: str) -> None:
    raise AssertionError(text)


def message_of(body: bytes) -> Message:
    return Message(Delivery("shop@q", "master", "order.paid", Properties.parse(b"\0\0"), body))


@pytest.mark.parametrize("body", BODIES)
def test_neither_the_error_nor_its_traceback_has_a_value_of_the_body(body: str) -> None:
    with pytest.raises(InvalidMessage) as raised:
        call_of(pay)(message_of(body.encode()))
    assert TOLD.search(str(raised.value))
    assert CARD not in str(raised.value)
    assert CARD not in traceback_of(raised.value)


@pytest.mark.parametrize(
    ("handler", "body"),
    [(pay, BODIES[0].encode()), (read, f"{CARD}\xff".encode("latin-1"))],
    ids=["model", "str"],
)
def test_the_error_leads_to_none_that_has_the_body(handler: object, body: bytes) -> None:
    assert callable(handler)
    with pytest.raises(InvalidMessage) as raised:
        call_of(handler)(message_of(body))
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None


def test_what_is_wrong_and_where_is_said() -> None:
    with pytest.raises(InvalidMessage) as raised:
        call_of(pay)(message_of(BODIES[2].encode()))
    expected = "by: The tag found using 'kind' is not one of the expected ones: 'card', 'bank'"
    assert str(raised.value).splitlines()[0] == f"1 problem(s) in the body as Payment: {expected}"


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrument(tracer_provider=provider)
    yield exporter
    uninstrument()
    provider.shutdown()


@both_shells
def test_a_value_is_in_no_header_no_trace_and_no_log(
    rabbitmq_url: str, shell: Shell, spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    service = Service(rabbitmq_url, shell, retry=retrying(0))
    with service.subscriber(pay):
        with service.publisher() as publisher:
            for body in BODIES:
                publisher.publish(body.encode(), "order.paid")
        failed = service.wait_for_failed(len(BODIES))
    assert [message.reason for message in failed] == ["invalid-message"] * len(BODIES)
    for message in failed:
        assert TOLD.search(message.error_message or "")
        assert message.traceback
        assert CARD not in repr(dict(message.headers))
        assert CARD not in repr(message.properties.headers)
    wait_until(
        lambda: len([1 for span in spans.get_finished_spans() if span.events]) == len(BODIES),
        "a traced error of each",
    )
    assert CARD not in repr([span.to_json() for span in spans.get_finished_spans()])
    assert "invalid-message" in caplog.text
    assert CARD not in caplog.text
    assert not any(CARD in repr(record.__dict__) for record in caplog.records)
