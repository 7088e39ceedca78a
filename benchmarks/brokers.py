"""The brokers to measure on: private ones, by version."""

import re
from typing import Any

from redrive.testing import Broker, private_broker
from redrive.testing.container_engine import engine_answers, has_image

VERSIONS = ("4.3", "4.0", "3.10")
LOCAL = "local"


def default_brokers() -> tuple[str, ...]:
    """Every version where containers can be had, else what this machine has."""
    return VERSIONS if engine_answers() else (LOCAL,)


def broker_of(name: str, **options: Any) -> Broker:
    """A broker that is not started yet.

    Args:
        name: a version such as `4.3`, an image, or `local` for what `redrive.testing` finds by
            itself.
        options: what else `private_broker` is told.
    """
    if name == LOCAL:
        return private_broker(**options)
    if not re.fullmatch(r"\d+\.\d+", name):
        return private_broker(image=name, **options)
    stand_in = f"redrive-rabbitmq:{name}"
    return private_broker(
        image=stand_in
        if engine_answers() and has_image(stand_in)
        else f"rabbitmq:{name}-management",
        **options,
    )
