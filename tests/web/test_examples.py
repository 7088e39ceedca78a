"""The examples of a console that is mounted, in a container and in Kubernetes."""

import re
import runpy
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
import yaml
from typer.testing import CliRunner

from redrive.cli.app import app as command_line
from redrive.web.auth.access_config import (
    AccessConfig,
    ListenAddress,
    Login,
    hosts_named,
    networks_of,
)
from redrive.web.auth.middleware import PROBES
from waiting import wait_until

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CONTAINER = EXAMPLES / "09-console-in-a-container"
RECIPE = (CONTAINER / "Containerfile").read_text(encoding="utf-8")
PREFIX = "/ops/redrive"


@contextmanager
def served(
    example: str, url: str, management_url: str, monkeypatch: pytest.MonkeyPatch, state: Path
) -> Iterator[tuple[dict[str, Any], httpx.Client]]:
    """An example as uvicorn serves it, its names, and a browser."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        host = f"127.0.0.1:{listening.getsockname()[1]}"
        monkeypatch.setenv("REDRIVE_URL", url)
        monkeypatch.setenv("REDRIVE_MANAGEMENT_URL", management_url)
        monkeypatch.setenv("CONSOLE_HOSTS", host)
        monkeypatch.setenv("XDG_STATE_HOME", str(state))
        names = runpy.run_path(str(EXAMPLES / example / "service.py"))
        server = uvicorn.Server(uvicorn.Config(names["app"], log_level="error"))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            wait_until(lambda: server.started, "it answers")
            with httpx.Client(base_url=f"http://{host}", trust_env=False, timeout=60) as client:
                yield names, client
        finally:
            server.should_exit = True
            thread.join()


def test_the_console_in_fastapi_lets_in_with_a_user_of_the_brokers(
    rabbitmq_url: str,
    rabbitmq_management_url: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    where = (rabbitmq_url, rabbitmq_management_url, monkeypatch, tmp_path)
    with served("07-console-in-fastapi", *where) as (_, client):
        assert client.get("/").json() == {"console": f"{PREFIX}/"}
        assert client.get(f"{PREFIX}/").headers["location"] == f"{PREFIX}/login"
        user = {"user": "guest", "password": "guest"}
        # Whoever mounts it may be reached by anybody: the broker would take guest for its own host.
        own = {"sec-fetch-site": "same-origin"}
        answer = client.post(f"{PREFIX}/login", data=user, headers=own)
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
        assert client.get(f"{PREFIX}/static/console.css").status_code == 200


def test_the_console_in_starlette_lets_in_by_its_link(
    rabbitmq_url: str,
    rabbitmq_management_url: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    where = (rabbitmq_url, rabbitmq_management_url, monkeypatch, tmp_path)
    with served("08-console-in-starlette", *where) as (_, client):
        link = re.findall(r"at (\S+)", capsys.readouterr().out)[0]
        assert client.get(link).headers["location"] == f"{PREFIX}/"
        assert client.get(f"{PREFIX}/journal").status_code == 200


def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((CONTAINER / "console.yaml").read_text(encoding="utf-8")))


def entrypoint() -> list[str]:
    return [str(word) for word in yaml.safe_load(RECIPE.rpartition("ENTRYPOINT ")[2])]


def test_the_container_runs_as_a_user_without_rights() -> None:
    (user,) = re.findall(r"^USER (\S+)$", RECIPE, re.MULTILINE)
    assert int(user) > 0
    pod = documents()[0]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == int(user)


def test_its_root_is_only_read_and_what_it_writes_has_a_place() -> None:
    (container,) = documents()[0]["spec"]["template"]["spec"]["containers"]
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(yaml.safe_load(re.findall(r"^VOLUME (.*)$", RECIPE, re.MULTILINE)[0])) == mounted
    assert re.findall(r"XDG_STATE_HOME=(\S+)", RECIPE)[0] in mounted


def test_its_probes_are_what_the_console_answers() -> None:
    (container,) = documents()[0]["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    probes = [container[kind]["httpGet"] for kind in ("livenessProbe", "readinessProbe")]
    assert {probe["path"] for probe in probes} == PROBES
    assert {ports[probe["port"]] for probe in probes} == {8015}
    assert documents()[1]["spec"]["ports"][0]["targetPort"] in ports


def test_its_command_can_be_called_and_listens() -> None:
    (container,) = documents()[0]["spec"]["template"]["spec"]["containers"]
    words = [*entrypoint(), *container["args"]]
    assert words[:2] == ["redrive", "web"]
    help_ = CliRunner().invoke(command_line, ["web", "--help"], env={"COLUMNS": "200"}).output
    asked = dict(zip(words[2::2], words[3::2], strict=True))
    assert all(option in help_ for option in asked)
    access = AccessConfig(
        login=Login(asked["--login"]),
        trusted_proxies=networks_of([asked["--trusted-proxy"]]),
        hosts=hosts_named([asked["--host"]]),
    )
    place = ListenAddress.of(asked["--listen"], access)
    assert "console.example" in place.allowed_hosts(place.port, access)
