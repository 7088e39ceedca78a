"""Takes the README's pictures: what real commands show at a real terminal, of a real failed queue.
`make pictures` runs it."""

import os
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from cli_support import Terminal
from redrive.spark_reprocess.sample import declare_queue, fill
from redrive.testing import private_broker

QUEUE = "ucenter@user"
COLUMNS = 100
WHERE = "error_type = 'KeyError' and body->>'$.customer' like '7%'"


def main() -> None:
    """Writes an SVG for each command into the folder that is named."""
    folder = Path(sys.argv[1])
    with private_broker() as broker, tempfile.TemporaryDirectory() as state:
        declare_queue(broker.url, QUEUE)
        fill(broker.url, QUEUE, 2000)
        journal = ("--journal", f"{state}/journal.sqlite3")
        _take(folder / "groups.svg", broker.url, "failed", "groups", QUEUE)
        _take(
            folder / "requeue.svg",
            broker.url,
            "failed",
            "requeue",
            QUEUE,
            "--where",
            WHERE,
            *journal,
            answer="y\n",
        )


def _take(picture: Path, url: str, *arguments: str, answer: str | None = None) -> None:
    with Terminal(*arguments, url=url, columns=COLUMNS) as terminal:
        if answer is not None:
            terminal.wait_for("[y/N]")
            terminal.type(answer)
        assert terminal.end() == 0, terminal.screen
    shown = [word for word in arguments if "journal" not in word]
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere)
        console.print(
            "$ redrive " + " ".join(f'"{word}"' if " " in word else word for word in shown),
            style="bold",
            highlight=False,
        )
        console.print(Text.from_ansi(terminal.screen.strip("\n")))
    console.save_svg(str(picture), title="redrive")


if __name__ == "__main__":
    main()
