"""The options of `redrive spark`: what each is called and what its help says, once."""

from typing import Annotated

import typer

Queues = Annotated[list[str], typer.Argument(metavar="QUEUE...", help="The main queues' names, such as ucenter@user.")]
ArchivePlace = Annotated[
    str, typer.Option("--archive", metavar="PLACE", help="Where messages are kept in between: a folder, s3a://bucket/folder, hdfs://…")
]
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="EXPRESSION",
        show_default=False,
        help="Which messages, such as \"error_type = 'TimeoutError'\"; without one, all.",
    ),
]
Transform = Annotated[
    str | None,
    typer.Option(
        "--transform", metavar="MODULE:FUNCTION", show_default=False, help="A function from DataFrame to DataFrame that changes body_bytes."
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        show_default=False,
        help="Where Spark runs: local[2], spark://host:7077, yarn; without one, this machine with all its cores.",
    ),
]
Partitions = Annotated[
    int | None, typer.Option("--partitions", metavar="N", min=1, show_default=False, help="Tasks; without one, as many as cores.")
]
Rate = Annotated[
    str | None,
    typer.Option("--rate", metavar="N/s", show_default=False, help="At most so many messages, of all tasks together: 5000/s, 30/m."),
]
Batch = Annotated[
    int, typer.Option("--batch", metavar="N", min=1, help="Messages of a task that may be on their way without being in the ledger.")
]
RunId = Annotated[
    str | None, typer.Option("--run", metavar="RUN", show_default=False, help="Which run of the archive; without one, the latest.")
]
CanaryWait = Annotated[str | None, typer.Option("--canary-wait", hidden=True, help="The former name of --watch.")]
LeastShare = Annotated[
    float, typer.Option("--least-share", metavar="SHARE", min=0, max=1, help="Stop where a smaller share of messages is confirmed.")
]
AnotherBroker = Annotated[
    bool, typer.Option("--another-broker", help="Send to this broker although the messages were drained from another one.")
]
Keep = Annotated[bool, typer.Option("--keep", help="Keep in the archive what is not chosen; otherwise it is put back.")]
