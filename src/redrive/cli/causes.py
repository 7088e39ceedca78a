"""`redrive causes`: the commands that tell a team what a cause is, and how far people are with
it."""

from redrive.cli.lazy_group import Listed, lazy_group

app = lazy_group(
    "Say what causes are: known, fixed, or the same.",
    {
        "list": Listed("redrive.cli.causes_list:list_", "List what was said of causes."),
        "say": Listed("redrive.cli.causes_say:say", "Say how far people are with a cause."),
        "merge": Listed("redrive.cli.causes_merge:merge", "Make two causes one."),
        "undo": Listed("redrive.cli.causes_undo:undo", "Take back what was said of a cause."),
    },
)
