"""The message that is being handled."""

import threading

from deliveries import first_delivery
from redrive.pubsub import current_message
from redrive.pubsub.message import Message


def test_there_is_none_outside_of_a_handler() -> None:
    assert current_message.current_message() is None


def test_it_is_this_threads_until_it_is_left() -> None:
    message = Message(first_delivery())
    token = current_message.enter(message, is_async=False)
    elsewhere: list[Message | None] = []
    thread = threading.Thread(target=lambda: elsewhere.append(current_message.current_message()))
    thread.start()
    thread.join()
    assert current_message.current_message() is message
    current_message.leave(token)
    assert current_message.current_message() is None
    assert elsewhere == [None]
