"""redrive on a queue that a service without it declares as well."""

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from contract.shells import KeepsFailed, Publishes
from contract.support import Service, retrying
from interop.peer import Peer
from redrive.topology.names import ExchangeFamily


@dataclass(frozen=True)
class SharedService(Service):
    """A service of redrive with a peer beside it."""

    exchanges: ExchangeFamily = field(default_factory=ExchangeFamily)

    def publisher(self, **options: Any) -> AbstractContextManager[Publishes]:
        return super().publisher(exchange=self.exchanges, **options)

    @property
    def failed_queue(self) -> KeepsFailed:
        return self.shell.failed_queue(self.url, self.queue, exchange=self.exchanges)

    def _subscription(self, options: dict[str, Any]) -> dict[str, Any]:
        return super()._subscription(
            {"exchange": self.exchanges, "retry_via": "republish", **options}
        )


def beside(peer: Peer, queue: str, pattern: str, max_retries: int) -> SharedService:
    """A service of redrive on a peer's queue, declared as the peer does, with its delay."""
    return SharedService(
        peer.url,
        queue=queue,
        queue_type="classic",
        routing_keys=(pattern,),
        retry=retrying(max_retries, peer.delay),
        exchanges=peer.exchanges,
    )
