"""A handler with a mistake sets messages aside; after the fix they are requeued and succeed."""

import os

from redrive import FailedQueue, Message, Publisher, RetryPolicy, Subscriber

URL = os.environ.get("REDRIVE_URL", "amqp://guest:guest@localhost/")
QUEUE = "invoices@order"


def run(rate_of: dict[str, float], expected: int) -> None:
    """Handles `expected` messages with these tax rates."""
    subscriber = Subscriber(URL, QUEUE, ["order.placed"], retry=RetryPolicy(max_retries=0))
    seen = 0

    @subscriber.handler
    def invoice(message: Message) -> None:
        nonlocal seen
        seen += 1
        if seen == expected:
            subscriber.stop()
        order = message.json()
        assert isinstance(order, dict)
        print(f"  order {order['id']}: tax {rate_of[order['country']]:.0%}")

    subscriber.run()


Subscriber(URL, QUEUE, ["order.placed"], retry=RetryPolicy(max_retries=0)).declare()
with Publisher(URL) as publisher:
    for number, country in enumerate(["DE", "FR", "DE", "FR"], start=1):
        publisher.publish({"id": number, "country": country}, "order.placed")

print("before the fix:")
run({"DE": 0.19}, expected=4)

failed = FailedQueue(URL, QUEUE)
for message in failed.browse(limit=10):
    print(
        f"  set aside: {message.body.decode()} because of {message.error_type}: "
        f"{message.error_message}"
    )

report = failed.requeue(where=lambda message: message.error_type == "KeyError")
print(f"requeued: {report.requeued}")

print("after the fix:")
run({"DE": 0.19, "FR": 0.20}, expected=report.requeued)
print("still failed:", failed.depth())
