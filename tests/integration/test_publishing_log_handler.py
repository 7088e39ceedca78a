"""A log handler that publishes, and is called on the publisher's own I/O thread."""

import logging
import threading

import pytest

from contract.plain import depth, plain_channel
from redrive import ConfigurationError, Publisher, RedriveError, Subscriber

QUEUE = "welcome@user"


class PublishesRecords(logging.Handler):
    """Publishes each record, and keeps what comes of it on which thread."""

    def __init__(self, publisher: Publisher) -> None:
        super().__init__(logging.WARNING)
        self._publisher = publisher
        self.refused: list[tuple[str, RedriveError]] = []

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._publisher.publish(record.getMessage(), "log.warning", timeout=1)
        except RedriveError as error:
            self.refused.append((threading.current_thread().name, error))


def test_it_is_refused_at_once_and_the_publisher_goes_on(rabbitmq_url: str) -> None:
    Subscriber(rabbitmq_url, QUEUE, ["user.*"]).declare()
    with Publisher(rabbitmq_url) as publisher:
        handler = PublishesRecords(publisher)
        logging.getLogger("redrive").addHandler(handler)
        try:
            with plain_channel(rabbitmq_url) as channel:
                channel.exchange_delete("master")
            # The broker closes the channel under them, and the I/O thread says so.
            assert len(publisher.publish_many([("hello", "user.create")] * 10).failed) == 10
        finally:
            logging.getLogger("redrive").removeHandler(handler)

        on_io_thread = [
            error for thread, error in handler.refused if thread.startswith("redrive-io-")
        ]
        assert on_io_thread
        for error in on_io_thread:
            assert isinstance(error, ConfigurationError)
            assert "would wait for itself" in str(error)

        Subscriber(rabbitmq_url, QUEUE, ["user.*"]).declare()
        publisher.publish("hello", "user.create", mandatory=True)
    assert depth(rabbitmq_url, QUEUE) == 1


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)  # it is the handler's own
def test_a_publisher_whose_io_thread_a_log_handler_ended_begins_another(rabbitmq_url: str) -> None:
    class Breaks(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if threading.current_thread().name.startswith("redrive-io-"):
                raise OSError("the disk is full")

    Subscriber(rabbitmq_url, QUEUE, ["user.*"]).declare()
    with Publisher(rabbitmq_url) as publisher:
        handler = Breaks()
        logging.getLogger("redrive").addHandler(handler)
        try:
            with plain_channel(rabbitmq_url) as channel:
                channel.exchange_delete("master")
            assert len(publisher.publish_many([("hello", "user.create")] * 10).failed) == 10
        finally:
            logging.getLogger("redrive").removeHandler(handler)

        Subscriber(rabbitmq_url, QUEUE, ["user.*"]).declare()
        publisher.publish("hello", "user.create", mandatory=True)
    assert depth(rabbitmq_url, QUEUE) == 1
