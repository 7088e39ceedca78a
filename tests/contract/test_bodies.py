"""Bodies as other publishers write them: what a handler gets of them, and that they travel as they
came."""

import gzip
import json
from typing import Any

import msgspec
import pika
import pydantic
import pytest

from contract.plain import drain, publish_plain
from contract.support import Service, retrying
from redrive import ConfigurationError, FailedQueue, GiveUp, Message, decode_msgpack
from waiting import wait_until

JSON = '{"id": 121, "city": "Köln"}'
MSGPACK = "application/msgpack"


class User(pydantic.BaseModel):
    """What some of these handlers ask for."""

    id: int
    city: str


def publish(service: Service, body: bytes, **properties: str) -> None:
    """Publishes as a service without redrive does."""
    given = pika.BasicProperties(message_id="m", **properties)  # type: ignore[no-untyped-call]
    publish_plain(service.url, "order.paid", body, given)


ENCODED: dict[str, tuple[bytes, dict[str, str]]] = {
    "bom": (b"\xef\xbb\xbf" + JSON.encode(), {"content_type": "application/json"}),
    "gzip": (gzip.compress(JSON.encode()), {"content_encoding": "gzip"}),
    "utf-16": (JSON.encode("utf-16"), {"content_type": "application/json; charset=utf-16"}),
    "charset as an encoding": (JSON.encode(), {"content_encoding": "utf-8"}),
    "msgpack": (msgspec.msgpack.encode(json.loads(JSON)), {"content_type": MSGPACK}),
}
encoded = pytest.mark.parametrize(("body", "properties"), ENCODED.values(), ids=ENCODED)


@encoded
def test_a_handler_gets_what_is_in_a_body_however_it_was_written(
    service: Service, body: bytes, properties: dict[str, str]
) -> None:
    seen: list[User] = []

    def handler(user: User) -> None:
        seen.append(user)

    with service.subscriber(handler, decoders={MSGPACK: decode_msgpack}):
        publish(service, body, **properties)
        wait_until(lambda: bool(seen), "the message is handled")
    assert seen == [User(id=121, city="Köln")]


def test_a_dict_is_read_as_a_model_is(service: Service) -> None:
    seen: list[dict[str, Any]] = []

    def handler(user: dict[str, Any]) -> None:
        seen.append(user)

    with service.subscriber(handler):
        publish(service, ENCODED["bom"][0])
        wait_until(lambda: bool(seen), "the message is handled")
    assert seen == [{"id": 121, "city": "Köln"}]


@encoded
def test_a_body_travels_as_it_came_through_retries_the_failed_queue_and_a_requeue(
    service: Service, body: bytes, properties: dict[str, str]
) -> None:
    def handler(user: User) -> None:
        raise RuntimeError("not yet")

    with service.subscriber(handler, retry=retrying(1), decoders={MSGPACK: decode_msgpack}):
        publish(service, body, **properties)
        service.wait_for_failed()
    assert service.failed_queue.requeue().requeued == 1
    ((sent, found),) = drain(service.url, service.queue)
    assert found == body
    assert {name: getattr(sent, name) for name in properties} == properties


def test_a_body_that_can_not_be_read_is_set_aside_at_once_and_says_what_it_is(
    service: Service,
) -> None:
    def handler(user: User) -> None: ...

    with service.subscriber(handler):
        publish(service, b"\x81\xa2id\x07", content_type=MSGPACK)
        (failed,) = service.wait_for_failed()
    assert (failed.reason, failed.retries) == ("invalid-message", 0)
    assert "content type 'application/msgpack', no content encoding, 5 bytes that begin with" in (
        failed.error_message or ""
    )


def test_a_bomb_is_an_invalid_message(service: Service) -> None:
    def handler(user: User) -> None: ...

    with service.subscriber(handler):
        publish(service, gzip.compress(bytes(2**25)), content_encoding="gzip")
        (failed,) = service.wait_for_failed()
    assert failed.reason == "invalid-message"
    assert "the body's gzip expands to more than" in (failed.error_message or "")


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt])
def test_whatever_a_decoder_raises_costs_its_message_and_no_worker(
    service: Service, kind: type[BaseException]
) -> None:
    seen: list[User] = []

    def decoder(body: bytes, message: Message) -> object:
        raise kind("a decoder's own")

    def handler(user: User) -> None:
        seen.append(user)

    with service.subscriber(handler, decoders={"a/b": decoder}):
        publish(service, b"x", content_type="a/b")
        (failed,) = service.wait_for_failed()
        publish(service, JSON.encode())
        wait_until(lambda: bool(seen), "the next message is handled")
    assert failed.reason == "invalid-message"
    assert f"failed with {kind.__name__}: a decoder's own" in (failed.error_message or "")


def test_a_decoder_that_can_be_none_is_refused_at_once(service: Service) -> None:
    with pytest.raises(ConfigurationError, match="which is not a content type"):
        service.declare(decoders={"msgpack": decode_msgpack})


def test_a_filter_chooses_by_what_the_handler_sees_and_a_patch_makes_it_plain(
    service: Service,
) -> None:
    def handler(user: User) -> None:
        raise GiveUp("no")

    with service.subscriber(handler):
        publish(service, gzip.compress(JSON.encode()), content_encoding="gzip")
        publish(service, JSON.replace("121", "122").encode())
        service.wait_for_failed(2)
    where, patch = "body->>'$.id' = '121' and body_text like '%Köln%'", '{"city": "Bonn"}'
    failed = FailedQueue(service.url, service.queue)
    assert failed.requeue(where, patch=patch).requeued == 1
    ((sent, body),) = drain(service.url, service.queue)
    assert json.loads(body) == {"id": 121, "city": "Bonn"}
    assert sent.content_encoding is None
