"""`redrive jobs`: commands for the journal of jobs."""

from redrive.cli.lazy_group import CommandEntry, lazy_group

app = lazy_group(
    "See what was done with failed messages, and resume a job.",
    {
        "list": CommandEntry(
            "redrive.cli.jobs_list:list_", "List everybody's jobs on a broker, newest first."
        ),
        "show": CommandEntry(
            "redrive.cli.jobs_show:show", "Show one job and what became of its messages."
        ),
        "run": CommandEntry(
            "redrive.cli.jobs_run:run", "Run a job that was written down, as a console does."
        ),
        "resume": CommandEntry(
            "redrive.cli.jobs_resume:resume", "Resume a job that was interrupted or stopped."
        ),
        "stop": CommandEntry(
            "redrive.cli.jobs_stop:stop", "Stop a running requeue, on any machine."
        ),
        "approve": CommandEntry(
            "redrive.cli.jobs_approve:approve",
            "Approve a job that somebody else asked for, and run it.",
        ),
        "decline": CommandEntry(
            "redrive.cli.jobs_decline:decline",
            "Decline a job that somebody asked for, so that it never runs.",
        ),
        "forget": CommandEntry(
            "redrive.cli.jobs_forget:forget",
            "Forget a job that nobody runs: it is no longer listed or resumed.",
        ),
        "originals": CommandEntry(
            "redrive.cli.jobs_originals:originals",
            "Write the messages a job changed, as they were, to a file.",
        ),
    },
)
