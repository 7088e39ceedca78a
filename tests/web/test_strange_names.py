"""Queues and users of a real broker whose names are markup, or steer a screen, stay text on every
page, and are reached by it."""

import contextlib
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from contract.administration import Administration
from contract.plain import RawProperties, plain_channel
from corpus import MARKUP, STEERING
from redrive.web.auth.access_config import AccessConfig, Login
from redrive.web.console_settings import Permit
from redrive.web.page_request import QueuePlace
from waiting import wait_until
from web.conftest import QUEUE, OpenConsole, Opens, failure
from web.test_hostile_texts import assert_only_text
from web.test_login import PASSWORD, log_in

NAMES = (
    *MARKUP[5:8],
    MARKUP[19],
    *(STEERING[how] for how in ("CSI, colours", "bidi override", "NUL")),
)


@pytest.fixture
def queues(rabbitmq_url: str) -> list[str]:
    """Subscriptions of these names, each with a failed message."""
    message = failure("sku-1", "KeyError", "'sku-1'")
    properties = RawProperties(message.properties.encode())
    with plain_channel(rabbitmq_url) as channel:
        for name in NAMES:
            for queue in (name, f"{name}@failed"):
                channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "classic"})
            channel.basic_publish("", f"{name}@failed", message.body, properties)
    return list(NAMES)


@pytest.fixture
def console(opens: Opens, queues: list[str]) -> OpenConsole:
    """A console that knows of all of them, and has looked at each."""
    console = opens(*Permit)
    context = console.server.console.context
    wait_until(
        lambda: (
            {line.place.name for line in context.queue_states.counts() if line.failed}
            >= set(queues)
        ),
        "the broker counts them",
    )
    assert console.post("/look-at-all").status_code == 303

    def all_are_seen() -> bool:
        looks = [context.looks.look_under_way(QueuePlace(name)) for name in queues]
        return all(look is not None and look.has_ended for look in looks)

    wait_until(all_are_seen, "each look has ended")
    return console


def test_a_queue_of_any_name_is_text_on_every_page_and_its_messages_are_shown(
    console: OpenConsole, queues: list[str]
) -> None:
    for path in ("/", "/me", "/journal", "/store", "/query"):
        answer = console.get(path)
        assert answer.status_code == 200, path
        assert_only_text(answer.text)
    for name in queues:
        for path in ("/causes", "/plan", "/message", "/edit", "/expire", "/discard", "/me"):
            answer = console.get(path, queue=name, id="sku-1")
            assert answer.status_code == 200, (path, name)
            assert_only_text(answer.text)


@pytest.fixture
def users(rabbitmq_url: str, rabbitmq_management_url: str) -> Iterator[list[str]]:
    """Users of these names, who may read everything."""
    administration = Administration(rabbitmq_management_url, rabbitmq_url)
    with contextlib.ExitStack() as held:
        names = [administration.unique(text) for text in NAMES if "\0" not in text]
        for name in names:
            held.enter_context(
                administration.user(quote(name, safe=""), password=PASSWORD, tags="management")
            )
        yield names


def test_a_user_of_any_name_comes_in_and_is_text_on_every_page(
    opens: Opens, users: list[str]
) -> None:
    console = opens(access=AccessConfig(login=Login.BROKER))
    for user in users:
        assert log_in(console, user).status_code == 303, user
        for path in ("/", "/me", "/journal"):
            answer = console.get(path, queue=QUEUE)
            assert answer.status_code == 200, (path, user)
            assert_only_text(answer.text)
        assert console.post("/logout").status_code == 303
