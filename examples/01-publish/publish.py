"""Publishes one message, and then a thousand."""

import os

from redrive import Publisher

URL = os.environ.get("REDRIVE_URL", "amqp://guest:guest@localhost/")

with Publisher(URL) as publisher:
    message_id = publisher.publish({"id": 121, "name": "guanyiyao"}, "user.create")
    print("confirmed:", message_id)

    report = publisher.publish_many(({"id": number}, "user.update") for number in range(1000))
    print("confirmed:", report.confirmed)
    print("no queue is bound for:", report.unroutable)
    for failed in report.failed:
        print("not confirmed:", failed.position, failed.error)
