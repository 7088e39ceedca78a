"""`redrive publish` on a real broker."""

from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from cli_support import declare, depth_of, redrive, run_redrive

QUEUE = "ucenter@user"


@pytest.fixture
def url(rabbitmq_url: str) -> str:
    declare(rabbitmq_url, QUEUE)
    return rabbitmq_url


@pytest.fixture
def channel(url: str) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    yield connection.channel()
    connection.close()


def arrived(channel: BlockingChannel) -> tuple[pika.BasicProperties, bytes]:
    """The message that is in the queue."""
    _, properties, body = channel.basic_get(QUEUE, auto_ack=True)
    assert properties is not None
    assert body is not None
    return properties, body


def test_the_message_arrives_with_its_id(url: str, channel: BlockingChannel) -> None:
    done = redrive(
        "publish",
        "user.create",
        '{"id": 1}',
        "--header",
        "tenant=acme",
        "--header",
        "empty=",
        url=url,
    )
    properties, body = arrived(channel)
    assert done.code == 0
    assert done.out == f"{properties.message_id}\n"
    assert body == b'{"id": 1}'
    assert properties.headers["tenant"] == "acme"
    assert properties.headers["empty"] == ""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"id": 1}', "application/json"),
        (b"hello, w\xc3\xb6rld\n", "text/plain; charset=utf-8"),
        (b'{"id": NaN}', "text/plain; charset=utf-8"),
        (b"\xff\xfe\x00", "application/octet-stream"),
        (b"", "text/plain; charset=utf-8"),
    ],
)
def test_a_body_from_standard_input_goes_as_it_is(
    url: str, channel: BlockingChannel, body: bytes, expected: str
) -> None:
    assert redrive("publish", "user.create", "-", url=url, stdin=body).code == 0
    properties, found = arrived(channel)
    assert (found, properties.content_type) == (body, expected)


def test_a_body_that_another_program_pipes_goes_as_it_is(
    url: str, channel: BlockingChannel
) -> None:
    body = b"\xff\xfe\x00"
    assert run_redrive("publish", "user.create", "-", url=url, stdin=body).code == 0
    _, found = arrived(channel)
    assert found == body


def test_a_content_type_that_is_given_counts(url: str, channel: BlockingChannel) -> None:
    redrive("publish", "user.create", "{}", "--content-type", "text/x-mine", url=url)
    properties, _ = arrived(channel)
    assert properties.content_type == "text/x-mine"


def test_json_says_where_it_went(url: str) -> None:
    found = redrive("publish", "user.create", "x", "--output", "json", url=url).json()
    assert found.pop("message_id")
    assert found == {"routing_key": "user.create", "exchange": "master", "routed": True}


def test_a_typo_in_the_key_is_seen(url: str) -> None:
    done = redrive("publish", "usr.create", "x", url=url)
    assert (done.code, done.out) == (1, "")
    assert "no queue is bound for it" in done.err


def test_a_message_for_nobody_is_noted_where_that_is_allowed(url: str) -> None:
    done = redrive("publish", "usr.create", "x", "--no-mandatory", url=url)
    assert done.code == 0
    assert (
        done.err == "No queue is bound to master for usr.create: the broker dropped the message.\n"
    )


def test_a_typo_in_the_exchange_makes_no_exchange(url: str) -> None:
    done = redrive("publish", "user.create", "x", "--exchange", "mastre", url=url)
    assert done.code == 2
    assert "no exchange 'mastre'" in done.error_lines[0]
    assert redrive("publish", "user.create", "x", "--exchange", "mastre", url=url).code == 2


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("k" * 256, "x"), "is 256 bytes; at most 255 fit"),
        (("key", "x", "--header", "tenant"), "the header 'tenant' is not NAME=VALUE"),
        (("key", "x", "--header", "=acme"), "the header '=acme' is not NAME=VALUE"),
        (("key", "x", "--header", "n" * 256 + "=x"), "is over 255 bytes"),
        (("key", "x", "--content-type", "t" * 256), "the property content_type is 256 bytes"),
        (("key",), "Missing argument"),
    ],
)
def test_what_cant_be_sent_is_said_in_two_lines(
    url: str, arguments: tuple[str, ...], problem: str
) -> None:
    done = redrive("publish", *arguments, url=url)
    assert done.code == 2
    assert problem in done.error_lines[0]
    assert len(done.error_lines) == 2
    assert depth_of(url, QUEUE)["main"] == 0


def test_json_goes_in_phps_envelope_where_that_is_asked_for(
    url: str, channel: BlockingChannel
) -> None:
    done = redrive("publish", "user.create", '{"id": 1}', "--codec", "php-envelope", url=url)
    _, body = arrived(channel)
    assert body.decode() == f'{{"body":{{"id":1}},"__id":"{done.out.strip()}"}}'


def test_what_is_not_json_goes_in_no_envelope(url: str) -> None:
    done = redrive("publish", "user.create", "hello", "--codec", "php-envelope", url=url)
    assert done.code == 2
    assert "the body is not JSON" in done.error_lines[0]


def test_a_codec_that_there_is_not_is_named_with_those_that_are(url: str) -> None:
    done = redrive("publish", "user.create", "hello", "--codec", "php", url=url)
    assert (done.code, done.error_lines[1]) == (2, "Choose 'json' or 'php-envelope'.")
