"""Handles users: retries what may work later, gives up on what can't."""

import os
from datetime import timedelta

from pydantic import BaseModel

from redrive import GiveUp, Publisher, RetryPolicy, Subscriber

URL = os.environ.get("REDRIVE_URL", "amqp://guest:guest@localhost/")


class UserCreated(BaseModel):
    id: int
    name: str


subscriber = Subscriber(
    URL,
    queue="welcome@user",
    routing_keys=["user.create"],
    retry=RetryPolicy(max_retries=3, delay=timedelta(seconds=1)),
)
attempts = 0


@subscriber.handler
def welcome(user: UserCreated) -> None:
    global attempts
    if user.name == "nobody":
        raise GiveUp("there is nobody to welcome")
    attempts += 1
    if attempts < 3:
        raise ConnectionError("the mail server does not answer")
    print(f"welcome, {user.name}, at the attempt number {attempts}")
    subscriber.stop()


subscriber.declare()
with Publisher(URL) as publisher:
    publisher.publish({"id": 1, "name": "nobody"}, "user.create")
    publisher.publish({"id": "not a number"}, "user.create")
    publisher.publish({"id": 121, "name": "guanyiyao"}, "user.create")
subscriber.run()
