"""Dead-lettering that has stopped, and what `redrive doctor` says to release it."""

import re
import shlex

from cli_support import redrive
from redrive.testing import Cluster


def stuck_queues(cluster: Cluster, url: str) -> dict[str, str]:
    """The queues whose dead-lettering has stopped, each with the argument that the remedy gives to
    `rabbitmqctl eval`."""
    found = redrive(
        "doctor",
        "--management-url",
        str(cluster.nodes[0].management_url),
        "--output",
        "json",
        url=url,
    ).json()["findings"]
    return {
        finding["where"]: _evaluated(finding["remedy"])
        for finding in found
        if finding["kind"] == "dead-lettering-stuck"
    }


def release(cluster: Cluster, url: str) -> bool:
    """Does what `redrive doctor` says for each queue that is stuck; returns whether one was."""
    found = stuck_queues(cluster, url)
    for expression in found.values():
        cluster.nodes[0].control("eval", expression)
    return bool(found)


def _evaluated(remedy: str) -> str:
    command = re.search(r"rabbitmqctl eval '(?:[^']|'\"'\"')*'", remedy)
    assert command, remedy
    return shlex.split(command[0])[2]
