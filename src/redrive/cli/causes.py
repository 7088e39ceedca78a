"""`redrive causes`: the commands that tell a team what a cause is, and how far people are with
it."""

from redrive.cli.lazy_group import CommandEntry, lazy_group

app = lazy_group(
    "Say what causes are: known, fixed, or the same.",
    {
        "list": CommandEntry("redrive.cli.causes_list:list_", "List what was said of causes."),
        "say": CommandEntry("redrive.cli.causes_say:say", "Say how far people are with a cause."),
        "merge": CommandEntry("redrive.cli.causes_merge:merge", "Make two causes one."),
        "undo": CommandEntry("redrive.cli.causes_undo:undo", "Take back what was said of a cause."),
    },
)
