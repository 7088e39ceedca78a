"""`redrive dlq`: commands for dead-letter queues that redrive did not make."""

from redrive.cli.lazy_group import CommandEntry, lazy_group

app = lazy_group(
    "Find dead-letter queues that redrive did not make.",
    {"scan": CommandEntry("redrive.cli.dlq_scan:scan", "List the dead-letter queues of a broker.")},
)
