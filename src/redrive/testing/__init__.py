"""Private RabbitMQ brokers for tests and demos, a proxy that simulates network faults, an in-memory
broker, and a pytest plugin (`redrive.testing.plugin`)."""

from redrive.testing.broker import Broker
from redrive.testing.broker_choice import private_broker, private_cluster
from redrive.testing.cluster import Cluster
from redrive.testing.failed_case import FailedCase, failed_cases
from redrive.testing.memory_broker import MemoryBroker
from redrive.testing.proxy import Proxy

__all__ = [
    "Broker",
    "Cluster",
    "FailedCase",
    "MemoryBroker",
    "Proxy",
    "failed_cases",
    "private_broker",
    "private_cluster",
]
