"""`redrive causes`: commands that set the state of causes and merge them."""

from redrive.cli.lazy_group import CommandEntry, lazy_group

app = lazy_group(
    "Track causes: set their states, merge duplicates.",
    {
        "list": CommandEntry("redrive.cli.causes_list:list_", "List the remarks on causes."),
        "say": CommandEntry("redrive.cli.causes_say:say", "Set the state of a cause."),
        "merge": CommandEntry("redrive.cli.causes_merge:merge", "Merge two causes."),
        "undo": CommandEntry("redrive.cli.causes_undo:undo", "Undo a remark on a cause."),
    },
)
