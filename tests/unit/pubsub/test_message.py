"""The message that is being handled."""

import threading

from deliveries import first_delivery
from redrive.pubsub.message import Message, begin_handling, current_message, end_handling


def test_there_is_none_outside_of_a_handler() -> None:
    assert current_message() is None


def test_it_is_this_threads_until_it_is_left() -> None:
    message = Message(first_delivery())
    token = begin_handling(message, is_async=False)
    elsewhere: list[Message | None] = []
    thread = threading.Thread(target=lambda: elsewhere.append(current_message()))
    thread.start()
    thread.join()
    assert current_message() is message
    end_handling(token)
    assert current_message() is None
    assert elsewhere == [None]
