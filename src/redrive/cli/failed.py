"""`redrive failed`: commands for failed messages, in whichever queue they are."""

from redrive.cli.lazy_group import CommandEntry, lazy_group

app = lazy_group(
    "Look at failed messages, requeue them, or delete them.",
    {
        "groups": CommandEntry(
            "redrive.cli.failed_groups:groups", "Group failed messages by cause."
        ),
        "list": CommandEntry(
            "redrive.cli.failed_list:list_", "List failed messages, oldest first."
        ),
        "show": CommandEntry("redrive.cli.failed_show:show", "Show one failed message in full."),
        "query": CommandEntry("redrive.cli.failed_query:query", "Query failed messages with SQL."),
        "columns": CommandEntry(
            "redrive.cli.failed_columns:columns", "List the columns that filters and queries use."
        ),
        "try": CommandEntry(
            "redrive.cli.failed_try:try_",
            "Try a handler on failed messages, before any is requeued.",
        ),
        "fixtures": CommandEntry(
            "redrive.cli.failed_fixtures:fixtures", "Write failed messages as tests for pytest."
        ),
        "requeue": CommandEntry(
            "redrive.cli.failed_requeue:requeue", "Requeue failed messages to where they failed."
        ),
        "snapshot": CommandEntry(
            "redrive.cli.failed_snapshot:snapshot", "Copy failed messages to a file."
        ),
        "discard": CommandEntry(
            "redrive.cli.failed_discard:discard", "Move failed messages to a file."
        ),
        "expire": CommandEntry(
            "redrive.cli.failed_discard:expire", "Move old failed messages to a file."
        ),
        "restore": CommandEntry(
            "redrive.cli.failed_restore:restore", "Restore failed messages from a file."
        ),
        "purge": CommandEntry(
            "redrive.cli.failed_purge:purge", "Delete all failed messages of a queue for good."
        ),
    },
)
