"""`redrive failed`: the commands that work on failed messages, whichever queue they are in."""

from redrive.cli.lazy_group import Listed, lazy_group

app = lazy_group(
    "Look at failed messages, requeue them, or delete them.",
    {
        "groups": Listed("redrive.cli.failed_groups:groups", "Group failed messages by cause."),
        "list": Listed("redrive.cli.failed_list:list_", "List failed messages, oldest first."),
        "show": Listed("redrive.cli.failed_show:show", "Show one failed message in full."),
        "query": Listed("redrive.cli.failed_query:query", "Query failed messages with SQL."),
        "columns": Listed(
            "redrive.cli.failed_columns:columns", "List the columns that filters and queries use."
        ),
        "requeue": Listed(
            "redrive.cli.failed_requeue:requeue", "Requeue failed messages to where they failed."
        ),
        "snapshot": Listed(
            "redrive.cli.failed_snapshot:snapshot", "Copy failed messages to a file."
        ),
        "discard": Listed("redrive.cli.failed_discard:discard", "Move failed messages to a file."),
        "expire": Listed(
            "redrive.cli.failed_discard:expire", "Move old failed messages to a file."
        ),
        "restore": Listed(
            "redrive.cli.failed_restore:restore", "Restore failed messages from a file."
        ),
        "purge": Listed(
            "redrive.cli.failed_purge:purge", "Delete all failed messages of a queue for good."
        ),
    },
)
