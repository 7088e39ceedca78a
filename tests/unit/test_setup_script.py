"""The script that makes the environment: what it says on a machine that lacks something."""

import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_TOOLS = ("bash", "cat", "cksum", "dirname", "grep", "id")


def test_all_that_is_missing_is_said_at_once_and_before_anything_is_made(tmp_path: Path) -> None:
    tools, checkout = tmp_path / "bin", tmp_path / "checkout"
    tools.mkdir()
    for tool in _TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (tools / tool).symlink_to(found)
    shutil.copytree(ROOT / ".ci", checkout / ".ci")
    done = subprocess.run(
        [str(tools / "bash"), str(checkout / ".ci" / "setup.sh"), "--java"],
        env={"PATH": str(tools), "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 1
    assert done.stdout == ""
    first, *missing, remedy = done.stderr.splitlines()
    assert first == "These are missing, and nothing was downloaded:"
    assert missing == ["  Python 3.11 or newer, with its venv module", "  Java 17 or newer"]
    assert "apt-get install python3 python3-venv openjdk-17-jre-headless" in remedy
    assert [entry.name for entry in checkout.iterdir()] == [".ci"]


def test_uv_has_the_same_settings_wherever_it_installs() -> None:
    """Behind a company's own certificates all of them work, or none."""
    recipe = re.compile(r"^\t@(?:.*\\\n)*.*$", re.MULTILINE)
    installing = [found for found in recipe.findall((ROOT / "Makefile").read_text(encoding="utf-8")) if "uv pip" in found]
    assert len(installing) == 2
    assert all(found.startswith("\t@. .ci/uv.sh; ") for found in installing)
    for script in ("setup.sh", "constraints.sh"):
        assert "\nsource .ci/uv.sh\n" in (ROOT / ".ci" / script).read_text(encoding="utf-8")


def test_everything_that_is_installed_is_pinned_by_its_hash_what_builds_this_package_included() -> None:
    scripts = [ROOT / "Makefile", *(ROOT / ".ci").glob("*.sh")]
    commands = [line for script in scripts for line in re.findall(r"(?:uv|-m) pip install .*", script.read_text(encoding="utf-8"))]
    assert len(commands) >= 7
    assert [line for line in commands if "--require-hashes" not in line and "--no-deps --no-build-isolation -e ." not in line] == []
    for pins in ("constraints.txt", ".ci/lowest.txt", "benchmarks/lock.txt"):
        assert re.search(r"^uv[-_]build==.* \\$", (ROOT / pins).read_text(encoding="utf-8"), re.MULTILINE), pins
