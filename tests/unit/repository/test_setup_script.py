"""The scripts that make the environments: what they install, and what they say on a machine that
lacks something."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
_TOOLS = ("bash", "cat", "cksum", "dirname", "grep", "id")


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder of programs that has what any machine has, and no Python, no Java and no broker."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in _TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (folder / tool).symlink_to(found)
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    shutil.copytree(ROOT / ".ci", folder / ".ci")
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    return folder


def write_program(path: Path, text: str) -> None:
    path.write_text(f"#!{shutil.which('bash')}\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def run_script(
    checkout: Path, tools: Path, name: str, arguments: Sequence[str] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(tools / "bash"), str(checkout / ".ci" / name), *arguments],
        env={"PATH": str(tools), "HOME": str(tools.parent), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_all_that_is_missing_is_said_at_once_and_before_anything_is_made(
    checkout: Path, tools: Path
) -> None:
    before = sorted(checkout.rglob("*"))
    done = run_script(checkout, tools, "setup.sh", ["--java"])

    assert done.returncode == 1
    assert done.stdout == ""
    first, *missing, remedy = done.stderr.splitlines()
    assert first == "These are missing, and nothing was downloaded:"
    assert missing == ["  Python 3.11 or newer, with its venv module", "  Java 17 or newer"]
    assert "apt-get install python3 python3-venv openjdk-17-jre-headless" in remedy
    assert sorted(checkout.rglob("*")) == before


def test_an_environment_is_given_what_a_larger_set_has_more_and_nothing_twice(
    checkout: Path, tools: Path
) -> None:
    programs = checkout / ".venv" / "bin"
    programs.mkdir(parents=True)
    write_program(programs / "python", '[ -z "$2" ] || echo the version')
    write_program(programs / "uv", 'echo "$*" >>"$HOME/installed"')
    installed = tools.parent / "installed"

    def extras_installed_for(wanted: str) -> list[list[str]]:
        """The extras of each installation that the script makes."""
        installed.write_text("", encoding="utf-8")
        done = run_script(checkout, tools, "setup.sh", [wanted])
        assert done.returncode == 0, done.stderr
        lines = installed.read_text(encoding="utf-8").splitlines()
        assert all("--require-hashes" in line or "--no-deps" in line for line in lines)
        return [re.findall(r"--extra (\w+)", line) for line in lines if "--no-deps" not in line]

    assert extras_installed_for("demo") == [["cli", "testing"]]
    assert extras_installed_for("demo") == []
    assert extras_installed_for("spark") == [["spark", "testing"]]
    assert extras_installed_for("test") == [
        [
            "async",
            "cli",
            "depends",
            "metrics",
            "msgpack",
            "reload",
            "settings",
            "testing",
            "web",
            "zstd",
        ]
    ]
    assert extras_installed_for("demo") == []
    (checkout / "constraints.txt").write_text("pika==1.4.4\n", encoding="utf-8")
    assert extras_installed_for("demo") == [["cli", "testing"]]


def test_what_is_installed_and_where_downloads_stay_is_said_before_it_is_done(
    checkout: Path, tools: Path, tmp_path: Path
) -> None:
    programs = checkout / ".venv" / "bin"
    programs.mkdir(parents=True)
    write_program(programs / "python", '[ -z "$2" ] || echo the version')
    write_program(programs / "uv", "exit 3")
    done = run_script(checkout, tools, "setup.sh", ["spark"], UV_CACHE_DIR=str(tmp_path / "cache"))

    assert done.returncode == 3
    first, *rest = done.stdout.splitlines()
    assert re.search(r"to be installed into \.venv: .*Spark: about \d+ [GM]B", first)
    assert first.endswith(f"; what is downloaded stays in {tmp_path}/cache")
    assert rest, "each step has a line of its own"


def test_a_set_that_there_is_not_is_said(checkout: Path, tools: Path) -> None:
    done = run_script(checkout, tools, "setup.sh", ["everything"])
    assert done.returncode == 2
    assert done.stderr == (
        "There is no set of dependencies named everything: tools, demo, spark, test, mutants or "
        "dev.\n"
    )


@pytest.mark.parametrize(("shown", "has_it"), [("Package: openjdk-17-jre-headless", 0), ("", 1)])
def test_a_package_that_others_only_name_is_none_of_the_release(
    checkout: Path, tools: Path, shown: str, has_it: int
) -> None:
    """apt-cache shows it without an error."""
    write_program(tools / "apt-get", "exit 0")
    write_program(tools / "apt-cache", f"[ -z '{shown}' ] || echo '{shown}'")
    write_program(checkout / ".ci" / "asked.sh", '. "${0%/*}/debian.sh"; release_has openjdk')
    assert run_script(checkout, tools, "asked.sh").returncode == has_it


def test_the_oldest_dependencies_ask_for_a_python_that_they_were_built_for(
    checkout: Path, tools: Path
) -> None:
    # As any Python but 3.11 and 3.12 answers.
    write_program(tools / "python3", "exit 1")
    done = run_script(checkout, tools, "lowest.sh", ["--python"])
    assert done.returncode == 1
    assert "no Python 3.11 or 3.12 is on PATH" in done.stderr
    write_program(tools / "python3.12", "exit 0")
    done = run_script(checkout, tools, "lowest.sh", ["--python"])
    assert (done.returncode, done.stdout) == (0, f"{tools}/python3.12\n")


def test_what_clean_leaves_outside_of_the_checkout_is_named(
    checkout: Path, tools: Path, tmp_path: Path
) -> None:
    assert run_script(checkout, tools, "kept.sh").stdout == ""
    cache = tmp_path / ".cache" / "uv"
    cache.mkdir(parents=True)
    assert f"\n  {cache}  " in run_script(checkout, tools, "kept.sh").stdout


def test_uv_has_the_same_settings_wherever_it_installs() -> None:
    """Behind a company's own certificates all of them work, or none."""
    recipe = re.compile(r"^\t@(?:.*\\\n)*.*$", re.MULTILINE)
    installing = [
        found
        for found in recipe.findall((ROOT / "Makefile").read_text(encoding="utf-8"))
        if "uv pip" in found
    ]
    assert len(installing) == 1
    assert all(found.startswith("\t@. .ci/uv.sh; ") for found in installing)
    for script in ("setup.sh", "constraints.sh", "lowest.sh"):
        assert "\nsource .ci/uv.sh\n" in (ROOT / ".ci" / script).read_text(encoding="utf-8")


def test_everything_that_is_installed_is_pinned_by_its_hash_what_builds_this_package_included() -> (
    None
):
    scripts = [ROOT / "Makefile", *(ROOT / ".ci").glob("*.sh")]
    commands = [
        line
        for script in scripts
        for line in re.findall(r"(?:uv|-m) pip install .*", script.read_text(encoding="utf-8"))
    ]
    assert len(commands) >= 5
    assert [
        line
        for line in commands
        if "--require-hashes" not in line and "--no-deps --no-build-isolation -e ." not in line
    ] == []
    for pins in ("constraints.txt", ".ci/lowest.txt", "benchmarks/lock.txt"):
        assert re.search(
            r"^uv[-_]build==.* \\$", (ROOT / pins).read_text(encoding="utf-8"), re.MULTILINE
        ), pins


def test_every_module_that_a_script_imports_is_in_the_package() -> None:
    scripts = [*(ROOT / ".ci").glob("*.sh"), *(ROOT / "tests").glob("*/*.sh")]
    imported = {
        module
        for script in scripts
        for module in re.findall(r"from (redrive[\w.]*) import", script.read_text(encoding="utf-8"))
    }
    assert imported
    assert [module for module in imported if find_spec(module) is None] == []
