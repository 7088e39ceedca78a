"""`redrive web`: the console, in a browser."""

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Annotated

import typer

from redrive.cli import job_options, options
from redrive.cli.output import Form, Printer
from redrive.pubsub.url import BrokerURL
from redrive.web.console_server import ConsoleServer, opened_server
from redrive.web.console_settings import ConsoleSettings, ListenPlace, permits_of

_PORT = "127.0.0.1:8015"


@options.expanded
def web(
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Where to listen: an address of the loopback. Port 0 takes any that is free.",
        ),
    ] = _PORT,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="requeue,edit",
            help="What may be done besides reading: requeue messages, and change their bodies. "
            "Default: nothing.",
            show_default=False,
        ),
    ] = None,
    hide_bodies: Annotated[
        bool, typer.Option("--hide-bodies", help="Show no body, and give none for download.")
    ] = False,
    journal: job_options.JournalFile = None,
    *,
    broker: options.FamilyOptions,
    output: options.Output = Form.TABLE,
) -> None:
    """Open the console: failed messages, their causes and jobs, in a browser.

    It prints a link that lets in one browser, once. The console listens on this machine alone, and
    only reads unless --allow says what else it may do. What it shows is what the last look at each
    queue has found; a queue is looked at when you say so. Ctrl-C ends it: jobs that run are stopped
    cleanly, and can be resumed.

    \b
    Example:
      redrive web --allow requeue
    """
    printer = Printer(output)
    place = ListenPlace.of(listen)
    # A URL that can't be read is told before a port is taken.
    url = BrokerURL.parse(broker.url)
    settings = ConsoleSettings(
        url=broker.url,
        family=broker.family,
        management_url=broker.management_url,
        permits=permits_of(allow or ()),
        hide_bodies=hide_bodies,
        journal=journal,
    )
    with opened_server(settings, place) as server:
        link = server.new_link()
        printer.result({"address": server.address, "link": link, "broker": url.address})
        may = ", ".join(sorted(settings.permits)) or "nothing but reading"
        printer.say(f"The console of {url.address}; allowed: {may}. Ctrl-C ends it.")
        printer.say(f"Open, once: {link}", cut=False)
        sys.stdout.flush()
        _run(server)
        server.console.close(
            lambda: printer.note("Jobs are stopped; what is on its way is settled.")
        )


def _run(server: ConsoleServer) -> None:
    """Serves until Ctrl-C or SIGTERM. The server has a thread of its own: uvicorn raises again what
    signals it has caught, and Ctrl-C is no error here."""
    done = threading.Event()

    def stop(_: int, __: FrameType | None) -> None:
        done.set()

    before: list[tuple[signal.Signals, Callable[[int, FrameType | None], object] | int | None]] = [
        (one, signal.signal(one, stop)) for one in (signal.SIGINT, signal.SIGTERM)
    ]
    thread = threading.Thread(target=server.run, name="redrive-console", daemon=True)
    thread.start()
    try:
        while thread.is_alive() and not done.wait(0.2):
            pass
        server.stop()
        thread.join()
    finally:
        for one, handler in before:
            signal.signal(one, handler)
