"""`redrive topology`: commands for a topology file."""

from redrive.cli.lazy_group import CommandEntry, lazy_group

app = lazy_group(
    "Keep the topology in a file: plan, apply, check.",
    {
        "plan": CommandEntry(
            "redrive.cli.topology_plan:plan", "Show what a file would change on the broker."
        ),
        "apply": CommandEntry("redrive.cli.topology_plan:apply", "Create what a file asks for."),
        "check": CommandEntry(
            "redrive.cli.topology_plan:check", "Check that the broker is as a file says."
        ),
        "migrate": CommandEntry(
            "redrive.cli.topology_migrate:migrate", "Change the arguments of live queues."
        ),
        "show": CommandEntry("redrive.cli.topology_show:show", "Show what a file asks for."),
        "init": CommandEntry(
            "redrive.cli.topology_show:init", "Write a topology file from what is on the broker."
        ),
        "history": CommandEntry(
            "redrive.cli.topology_history:history",
            "Keep a copy of each failure for a time, in a stream.",
        ),
        "destroy": CommandEntry(
            "redrive.cli.topology_destroy:destroy", "Delete what a file describes."
        ),
        "schema": CommandEntry(
            "redrive.cli.topology_show:schema", "Print the JSON Schema of topology files."
        ),
    },
)
