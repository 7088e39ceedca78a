"""A test whose program is not installed is skipped, but never where CI is set and the program can
be had."""

from pathlib import Path

import pytest

from prerequisites import unavailable


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A release of the distribution that has php-cli, and no library for Java, which a package of
    its own names."""
    apt = tmp_path / "apt-cache"
    apt.write_text(
        "#!/bin/sh\n"
        "case $2 in\n"
        "    php-cli) echo Package: php-cli ;;\n"
        "    librabbitmq-client-java) echo N: No packages found >&2 ;;\n"
        "    *) exit 100 ;;\n"
        "esac\n"
    )
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_what_could_be_installed_is_a_failure_in_ci(
    release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="This needs php-cli"):
        unavailable("php-cli")


def test_what_the_release_does_not_have_is_skipped_in_ci(
    release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.skip.Exception, match="php-cli and librabbitmq-client-java"):
        unavailable("php-cli", "librabbitmq-client-java")


def test_where_nothing_is_known_of_a_release_ci_leaves_nothing_out(
    release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    (release / "apt-cache").unlink()
    with pytest.raises(pytest.fail.Exception):
        unavailable("librabbitmq-client-java")


def test_elsewhere_it_is_skipped(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception):
        unavailable("php-cli")
