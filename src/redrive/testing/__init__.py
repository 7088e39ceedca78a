"""A private RabbitMQ for tests and demos, a way to break the wire to it, and a pytest plugin (`redrive.testing.plugin`)."""

from redrive.testing.broker import Broker
from redrive.testing.choice import private_broker
from redrive.testing.proxy import Proxy

__all__ = ["Broker", "Proxy", "private_broker"]
