"""`redrive web`: the console, in a browser."""

import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from redrive.cli import job_options, options
from redrive.cli.interrupt import ended_by_signals
from redrive.cli.output import OutputFormat, Printer
from redrive.failures.message.mask import Mask
from redrive.pubsub.url import BrokerURL
from redrive.topology.durations import duration_of
from redrive.web.auth.access_config import (
    AccessConfig,
    ListenAddress,
    Login,
    header_named,
    hosts_named,
    networks_of,
)
from redrive.web.console_server import ConsoleServer, opened_server
from redrive.web.console_settings import ConsoleSettings, permits_of
from redrive.web.tracker_link import TrackerLink

_PORT = "127.0.0.1:8015"


@options.expanded
def web(
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Where to listen. Other machines can reach it only if people log in, over TLS or "
            "through a proxy that has TLS. Port 0 takes any free port.",
        ),
    ] = _PORT,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="requeue,edit,note,store,discard,pause",
            help="What users may do besides reading, if the broker lets them: requeue messages, "
            "change their bodies, add notes to causes, copy messages to files and restore them, "
            "move them to a file, pause subscriptions. Default: nothing.",
            show_default=False,
        ),
    ] = None,
    hide_bodies: Annotated[
        bool, typer.Option("--hide-bodies", help="Hide bodies on all pages and in all downloads.")
    ] = False,
    trackers: Annotated[
        list[str] | None,
        typer.Option(
            "--tracker",
            metavar="URL",
            help="The team's issue tracker: a URL with {type}, {message}, {frame}, {group} or "
            "{queue} in it, which each cause links to. Can be repeated.",
            show_default=False,
        ),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(
            "--store",
            metavar="FOLDER",
            help="The folder of copies of failed messages. Default: one in the user's state "
            "directory.",
            show_default=False,
        ),
    ] = None,
    masks: Annotated[
        list[str] | None,
        typer.Option(
            "--mask",
            metavar="JSONPATH",
            help="Hide what is at this path of the bodies, such as '$.card.number', on all pages "
            "and in all downloads. Can be repeated.",
            show_default=False,
        ),
    ] = None,
    login: Annotated[
        Login,
        typer.Option(
            "--login",
            help="How people log in: with the link that is printed, or with a user name and "
            "password of the broker; then they act as that user. --trust-header sets proxy.",
        ),
    ] = Login.LINK,
    certfile: Annotated[
        Path | None,
        typer.Option("--certfile", metavar="PEM", help="The certificate, for TLS."),
    ] = None,
    keyfile: Annotated[
        Path | None,
        typer.Option(
            "--keyfile", metavar="PEM", help="The certificate's key, if it is in another file."
        ),
    ] = None,
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="NAME",
            help="Another host name under which people open the console. Can be repeated.",
            show_default=False,
        ),
    ] = None,
    trusted_proxies: Annotated[
        list[str] | None,
        typer.Option(
            "--trusted-proxy",
            metavar="ADDRESS",
            help="A proxy in front, whose X-Forwarded-For, -Proto and -Host are trusted: an "
            "address or a network. Can be repeated.",
            show_default=False,
        ),
    ] = None,
    trust_header: Annotated[
        str | None,
        typer.Option(
            "--trust-header",
            metavar="NAME",
            help="The header in which that proxy says who somebody is, such as X-Forwarded-User. "
            "They act as the user of --url.",
            show_default=False,
        ),
    ] = None,
    idle_time: Annotated[
        str,
        typer.Option(
            "--idle-time", metavar="DURATION", help="How long until an unused login ends."
        ),
    ] = "30m",
    journal: job_options.JournalFile = None,
    *,
    broker: options.FamilyOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Open the console: failed messages, their causes and jobs, in a browser.

    It prints a link that lets in one browser, once, and listens only on this machine; with --login
    broker people log in, from anywhere. It only reads, unless --allow says what else it may do and
    the broker lets the user do it. It shows what the last look at each queue has found; a queue is
    only looked at when you ask for it. Ctrl-C ends it: running jobs are stopped cleanly, and can be
    resumed.

    \b
    Example:
      redrive web --allow requeue
      redrive web --login broker --listen 0.0.0.0:8443 --host console.example
        --certfile console.pem --keyfile console.key --allow requeue,edit
    """
    printer = Printer(output)
    header = header_named(trust_header) if trust_header is not None else ""
    access = AccessConfig(
        login=Login.PROXY if header and login is Login.LINK else login,
        certfile=certfile,
        keyfile=keyfile,
        trusted_proxies=networks_of(trusted_proxies or ()),
        trust_header=header,
        hosts=hosts_named(hosts or ()),
        idle_time=duration_of(idle_time, "--idle-time"),
    )
    place = ListenAddress.of(listen, access)
    # Reject a URL that can't be parsed before taking a port.
    url = BrokerURL.parse(broker.url)
    settings = ConsoleSettings(
        url=broker.url,
        family=broker.family,
        management_url=broker.management_url,
        permits=permits_of(allow or ()),
        hide_bodies=hide_bodies,
        mask=Mask.of(masks or ()),
        journal=journal,
        store=store,
        trackers=tuple(map(TrackerLink.of, trackers or ())),
        access=access,
    )
    # Before the link is printed: its reader may end this at once.
    with ended_by_signals() as ended, opened_server(settings, place) as server:
        link = server.new_link() if access.login is Login.LINK else None
        printer.result({"address": server.address, "link": link, "broker": url.address})
        may = ", ".join(sorted(settings.permits)) or "nothing but reading"
        printer.say(f"The console of {url.address}; allowed: {may}. Ctrl-C ends it.")
        printer.say(f"Open: {server.address}" if link is None else f"Open, once: {link}")
        sys.stdout.flush()
        _serve(server, ended)
        server.console.close(lambda: printer.note("Stopping the jobs that run here."))


def _serve(server: ConsoleServer, ended: threading.Event) -> None:
    """Serve until the event is set. The server has its own thread: in the main one, uvicorn would
    re-raise the signals that it has caught, and Ctrl-C is not an error here."""
    thread = threading.Thread(target=server.run, name="redrive-console", daemon=True)
    thread.start()
    while thread.is_alive() and not ended.wait(0.2):
        pass
    server.stop()
    thread.join()
