"""`redrive topology`: the commands that work on a topology file."""

from redrive.cli.lazy_group import Listed, lazy_group

app = lazy_group(
    "Keep the topology in a file: plan, apply, check.",
    {
        "plan": Listed(
            "redrive.cli.topology_plan:plan", "Show what a file would change on the broker."
        ),
        "apply": Listed("redrive.cli.topology_plan:apply", "Create what a file asks for."),
        "check": Listed(
            "redrive.cli.topology_plan:check", "Check that the broker is as a file says."
        ),
        "migrate": Listed(
            "redrive.cli.topology_migrate:migrate", "Change the arguments of live queues."
        ),
        "show": Listed("redrive.cli.topology_show:show", "Show what a file asks for."),
        "init": Listed(
            "redrive.cli.topology_show:init", "Write a topology file from what is on the broker."
        ),
        "history": Listed(
            "redrive.cli.topology_history:history",
            "Keep a copy of each failure for a time, in a stream.",
        ),
        "destroy": Listed("redrive.cli.topology_destroy:destroy", "Delete what a file describes."),
        "schema": Listed(
            "redrive.cli.topology_show:schema", "Print the JSON Schema of topology files."
        ),
    },
)
