"""The broker's own shovel: a dynamic one, from the failed queue to the main queue, that ends when
the queue's depth is through."""

import base64
import json
import time
import urllib.request
from urllib.parse import unquote, urlsplit

import pika

from benchmarks.measure import Clock, Place

_LOOK_EVERY = 0.02


def requeue(place: Place, clock: Clock) -> int:
    """Puts the shovel and waits until all messages are ready in the main queue. The work is the
    broker's: this process only waits."""
    with pika.BlockingConnection(pika.URLParameters(place.url)) as connection:
        channel = connection.channel()

        def ready(queue: str) -> int:
            return int(channel.queue_declare(queue, passive=True).method.message_count)

        count = ready(f"{place.queue}@failed")
        with clock:
            _put_shovel(place)
            while ready(place.queue) < count:
                time.sleep(_LOOK_EVERY)
        return ready(place.queue)


def _put_shovel(place: Place) -> None:
    address = urlsplit(place.url)
    inside = (
        f"amqp:///{address.path[1:]}"  # without a host: the broker connects to itself, not over TCP
    )
    shovel = {
        "src-protocol": "amqp091",
        "src-uri": inside,
        "src-queue": f"{place.queue}@failed",
        "src-delete-after": "queue-length",
        "dest-protocol": "amqp091",
        "dest-uri": inside,
        "dest-queue": place.queue,
        "ack-mode": "on-confirm",
    }
    request = urllib.request.Request(
        f"{place.management_url}/api/parameters/shovel/{address.path[1:]}/requeue",
        method="PUT",
        data=json.dumps({"value": shovel}).encode(),
        headers={"content-type": "application/json"},
    )
    user = f"{unquote(address.username or 'guest')}:{unquote(address.password or 'guest')}"
    request.add_header("authorization", f"Basic {base64.b64encode(user.encode()).decode()}")
    urllib.request.urlopen(request, timeout=30).close()
