"""A private broker using the `rabbitmq-server` installed on this machine."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from redrive.errors import BrokerUnavailable, ConfigurationError
from redrive.testing.address import Address
from redrive.testing.broker import (
    CONFIG,
    ERLANG_ARGUMENTS,
    PLUGINS,
    START_SECONDS,
    STOP_SECONDS,
    Broker,
    BrokerKind,
    not_ready,
    rendered_config,
    still_runs,
)
from redrive.testing.membership import Membership
from redrive.testing.ports import free_ports

# Debian and Fedora; the two locations of Homebrew; a generic archive.
_SCRIPT_FOLDERS = (
    "/usr/lib/rabbitmq/bin",
    "/opt/homebrew/opt/rabbitmq/sbin",
    "/usr/local/opt/rabbitmq/sbin",
    "/opt/rabbitmq/sbin",
)
_BETWEEN_LOOKS = 0.01
_NODES = "redrive-{place}@localhost"
# Reads a pipe that only this process holds: when the process is gone, for whatever reason,
# everything that it started is killed.
_REAPER = """
read -r _
for pid in "$1"/pids/*; do [ -e "$pid" ] && kill -9 "${pid##*/}" 2>/dev/null; done
rm -rf "$1" 2>/dev/null || { sleep 1; rm -rf "$1"; }
"""


def server_scripts() -> Path | None:
    """Return the folder of the server's own scripts; None if no `rabbitmq-server` is installed.

    The command on PATH is often a wrapper that changes the user and is tied to one data folder. The
    server's own scripts have a file `rabbitmq-env` next to them.
    """
    folders = [Path(folder) for folder in _SCRIPT_FOLDERS]
    on_path = shutil.which(
        "rabbitmq-server",
        path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]),
    )
    if on_path:
        folders.append(Path(on_path).resolve().parent)
    return next(
        (
            folder
            for folder in folders
            if (folder / "rabbitmq-env").exists() and (folder / "rabbitmq-server").exists()
        ),
        None,
    )


def _installation_with_few_plugins(scripts: Path, plugins: Sequence[str], folder: Path) -> Path:
    """Link to an installed server without its unused plugins, and return the folder of its scripts.

    Erlang searches each plugin's folder for each module, whether the plugin is enabled or not. With
    the seventy of Debian's 3.10.8, a start opens 59,000 files, of which 53,000 don't exist, and
    takes 9 to 11 seconds of processor time; with 36 of them, 6 to 7.
    """
    installed = (scripts / "rabbitmq-server").resolve().parent.parent
    if not (installed / "plugins").is_dir():
        return scripts
    needed = _with_what_they_need(("rabbit", *plugins), installed / "plugins")
    (folder / "plugins").mkdir(parents=True)
    for entry in installed.iterdir():
        if entry.name != "plugins":
            (folder / entry.name).symlink_to(entry)
    for entry in (installed / "plugins").iterdir():
        name = _application(entry)
        if name in needed or not name.startswith("rabbitmq_"):
            (folder / "plugins" / entry.name).symlink_to(entry)
    return folder / "sbin"


def _with_what_they_need(applications: Iterable[str], plugins: Path) -> set[str]:
    """Add the dependencies of Erlang applications, as listed in their descriptions in `plugins`."""
    folders = {_application(folder): folder for folder in plugins.iterdir()}
    needed: set[str] = set()
    left = list(applications)
    while left:
        name = left.pop()
        description = folders.get(name, plugins) / "ebin" / f"{name}.app"
        if name not in needed and description.exists():
            needed.add(name)
            for listed in re.findall(r"applications,\s*\[([^]]*)\]", description.read_text()):
                left += re.findall(r"\w+", listed)
    return needed


def _application(folder: Path) -> str:
    """Return the Erlang application in a plugin's folder, whose name ends with the version."""
    return folder.name.partition("-")[0]


class ProcessBroker(Broker):
    """A `rabbitmq-server` process with its own ports, node name, cookie, data and epmd, on the
    loopback interface only."""

    def __init__(
        self,
        scripts: Path,
        config: Mapping[str, str] | None = None,
        plugins: Sequence[str] = (),
        membership: Membership | None = None,
    ) -> None:
        amqp, management, self._dist_port, epmd_port = free_ports(4)
        self._membership = membership
        self._epmd_port = membership.epmd_port if membership else epmd_port
        super().__init__(Address("127.0.0.1", amqp), f"http://127.0.0.1:{management}")
        self._scripts = scripts
        self._plugins = (*PLUGINS, *plugins)
        self._node = (
            _NODES.format(place=membership.place) if membership else f"redrive-{amqp}@localhost"
        )
        self._config = {
            "listeners.tcp.1": f"127.0.0.1:{amqp}",
            "management.tcp.ip": "127.0.0.1",
            "management.tcp.port": str(management),
            **CONFIG,
            **(membership.config(_NODES) if membership else {}),
            **(config or {}),
        }
        self._folder: Path | None = None
        self._reaper: subprocess.Popen[bytes] | None = None
        self._epmd: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._paused = False

    @property
    def kind(self) -> BrokerKind:
        return "process"

    @property
    def node_name(self) -> str:
        return self._node

    @property
    def origin(self) -> str:
        return "process of the installed rabbitmq-server"

    def start(self) -> None:
        if self._paused:
            self.resume()
        if self._running() is not None:
            return
        folder = self._prepare()
        with (folder / "console.log").open("ab") as console:
            self._server = subprocess.Popen(
                [self._scripts / "rabbitmq-server"],
                env=self._environment(folder),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                # A session of its own: Ctrl-C in the terminal is for the tests, which stop the
                # broker in their own order.
                start_new_session=True,
            )
        self._note(self._server)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self._wait_until_ready(min(deadline, time.monotonic() + 1))
            except BrokerUnavailable:
                if self._server.poll() is None and time.monotonic() < deadline:
                    continue
                self.kill()
                raise not_ready(self._address, self.log()) from None
            return

    def stop(self) -> None:
        server = self._running()
        if server is None:
            return
        if self._paused:
            self.resume()
        server.terminate()
        try:
            server.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerUnavailable(
                self._address.label, f"it did not stop within {STOP_SECONDS:g} s and was killed"
            ) from None
        self._strike_out(server)

    def kill(self) -> None:
        if self._server is None:
            return
        # The script has been replaced by the Erlang VM (see `_environment`), so this is the whole
        # broker.
        self._server.kill()
        self._server.wait(STOP_SECONDS)
        self._paused = False
        self._strike_out(self._server)

    def pause(self) -> None:
        server = self._needed()
        server.send_signal(signal.SIGSTOP)
        self._paused = True
        # On a busy machine some of its threads keep running for a moment.
        while server.poll() is None and not _has_stopped(server.pid):
            time.sleep(_BETWEEN_LOOKS)

    def resume(self) -> None:
        self._needed().send_signal(signal.SIGCONT)
        self._paused = False

    def control(self, *arguments: str) -> str:
        done = subprocess.run(
            [self._scripts / "rabbitmqctl", *arguments],
            env=self._environment(self._prepare()),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode:
            raise ConfigurationError(
                f"rabbitmqctl {' '.join(arguments)} failed: {(done.stderr or done.stdout).strip()}"
            )
        return done.stdout

    def log(self) -> str:
        if self._folder is None:
            return ""
        logs = [self._folder / "console.log", *sorted((self._folder / "log").glob("*.log"))]
        return "\n".join(log.read_text(errors="replace") for log in logs if log.exists())

    def save_data(self, file: Path) -> None:
        if self._folder is None:
            raise ConfigurationError("This broker has no data yet.", "Call start() first.")
        if self._running():
            raise still_runs()
        with tarfile.TarFile(file, "w") as saved:
            saved.add(self._folder / "data", "data")

    def close(self) -> None:
        self._forget_exit()
        # Nobody will read the data again, so a kill is as good as a stop, and faster.
        self.kill()
        self._server = None
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait(STOP_SECONDS)
            self._strike_out(self._epmd)
            self._epmd = None
        if self._reaper is not None and self._reaper.stdin is not None:
            self._reaper.stdin.close()
            self._reaper.wait(STOP_SECONDS)
        self._reaper = self._folder = None

    def _running(self) -> subprocess.Popen[bytes] | None:
        return self._server if self._server is not None and self._server.poll() is None else None

    def _needed(self) -> subprocess.Popen[bytes]:
        server = self._running()
        if server is None:
            raise ConfigurationError("This broker is not running.", "Call start() first.")
        return server

    def _prepare(self) -> Path:
        """Create the folder, its files, and the two helper processes that live as long as this
        broker object."""
        if self._folder is not None:
            return self._folder
        folder = self._folder = Path(tempfile.mkdtemp(prefix="redrive-rabbitmq-"))
        for name in ("pids", "conf.d", "data", "log"):
            (folder / name).mkdir()
        (folder / "environment").touch()
        (folder / "rabbitmq.conf").write_text(rendered_config(self._config))
        (folder / "enabled_plugins").write_text(f"[{','.join(self._plugins)}].\n")
        self._scripts = _installation_with_few_plugins(
            self._scripts, self._plugins, folder / "server"
        )
        self._reaper = subprocess.Popen(
            ["/bin/sh", "-c", _REAPER, "redrive-reaper", folder],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._close_at_exit()
        if self._membership is not None:
            _write_cookie(folder, self._membership.cookie)
        epmd = _epmd()
        if self._membership is not None and not self._membership.is_first:
            _wait_until_it_listens(self._epmd_port)
        elif epmd is not None:
            # A separate one rather than the machine's: an Erlang node would otherwise start one
            # that outlives it.
            command = [epmd, "-port", str(self._epmd_port), "-address", "127.0.0.1"]
            self._epmd = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._note(self._epmd)
        return folder

    def _environment(self, folder: Path) -> dict[str, str]:
        # Settings for the machine's own broker, or from a service manager that started this
        # process, must not reach this one.
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("RABBITMQ_", "ERL_")) and name != "NOTIFY_SOCKET"
        }
        return inherited | {
            "HOME": str(folder),
            "RABBITMQ_SCRIPTS_DIR": str(self._scripts),
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self._node,
            "RABBITMQ_DIST_PORT": str(self._dist_port),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "environment"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
            "RABBITMQ_CONFIG_FILES": str(folder / "conf.d"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_PID_FILE": str(folder / "rabbitmq.pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"{ERLANG_ARGUMENTS} "
            "-kernel inet_dist_use_interface {127,0,0,1}",
            # Makes the start script exec the Erlang VM: one process, whose pid is known and which
            # receives signals.
            "RUNNING_UNDER_SYSTEMD": "true",
        }

    def _note(self, process: subprocess.Popen[bytes]) -> None:
        if self._folder is not None:
            (self._folder / "pids" / str(process.pid)).touch()

    def _strike_out(self, process: subprocess.Popen[bytes]) -> None:
        # The pid may soon belong to another process.
        if self._folder is not None:
            (self._folder / "pids" / str(process.pid)).unlink(missing_ok=True)


def _has_stopped(child: int) -> bool:
    """Return whether every thread of a child process has stopped; always True if the system can't
    tell without consuming its exit code."""
    if not hasattr(os, "waitid"):
        return True
    return os.waitid(os.P_PID, child, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None


def _write_cookie(home: Path, cookie: str) -> None:
    file = home / ".erlang.cookie"
    file.write_text(cookie)
    file.chmod(0o400)


def _wait_until_it_listens(port: int) -> None:
    # A node that starts before the port mapper would start one that outlives it.
    deadline = time.monotonic() + STOP_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise BrokerUnavailable(
        f"127.0.0.1:{port}", "the port mapper of the cluster's first node is not listening"
    )


def _epmd() -> str | None:
    """Return the path of the Erlang port mapper, on PATH or in the folder of the Erlang that `erl`
    belongs to."""
    on_path = shutil.which("epmd")
    erl = shutil.which("erl")
    if on_path or not erl:
        return on_path
    return next(
        (str(found) for found in Path(erl).resolve().parent.parent.glob("erts-*/bin/epmd")), None
    )
