"""What a test needs besides Python and a broker, and what happens where it is not there."""

import os
import shutil
import subprocess
from typing import NoReturn

import pytest


def unavailable(*packages: str) -> NoReturn:
    """Skips a test that needs these Debian packages, or fails it.

    Not everybody has another language at hand; but where CI is set nothing may be left out that
    this release of the distribution has.
    """
    reason = (
        f"This needs {' and '.join(packages)} (the names of Debian's packages); `make test` "
        "installs them if it can."
    )
    if os.environ.get("CI") and not any(_release_lacks(package) for package in packages):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def not_set_up(what: str) -> NoReturn:
    """Skips a test that needs what `make test` installs into this folder; where CI is set, fails
    it."""
    reason = f"This needs {what}; `make test` installs it."
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def _release_lacks(package: str) -> bool:
    """Whether this is Debian or Ubuntu, in a release that does not have the package."""
    apt = shutil.which("apt-cache")
    if apt is None:
        return False
    # What other packages only name is shown without an error, and empty.
    shown = subprocess.run(
        [apt, "show", package], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return not shown.stdout
