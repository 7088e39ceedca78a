"""A pause outlives the broker's restart."""

import pytest

from contract.support import Recorder, Service
from redrive import App
from redrive.testing.broker import Broker
from waiting import wait_until


@pytest.mark.nightly("a broker takes half a minute to end and to come back")
def test_a_pause_outlives_a_restart_of_the_broker_for_workers_old_and_new(
    rabbitmq_broker: Broker, rabbitmq_url: str
) -> None:
    service = Service(rabbitmq_url)
    handler = Recorder()
    app = App(rabbitmq_url)
    with service.subscriber(handler) as one:
        app.pause(service.queue, reason="an upgrade")
        wait_until(lambda: one.paused, "it knows")
        rabbitmq_broker.restart()
        with service.subscriber(handler) as another:
            wait_until(lambda: another.paused, "the new one knows")
            wait_until(lambda: one.ready and another.ready, "both are connected")
            id_ = service.publish()
            assert another.paused is not None
            assert another.paused.reason == "an upgrade"
            assert handler.attempts == []
            app.resume(service.queue)
            handler.wait_for_handled([id_])
