"""Who does something: this process's user, or whom it serves."""

import socket
import threading

from redrive.failures.store.operator_name import acting_for, whoami


def test_it_is_the_user_of_this_process_on_its_host() -> None:
    assert whoami().endswith(f"@{socket.gethostname()}")


def test_whom_this_process_serves_stands_before_it_as_long_as_it_does() -> None:
    own = whoami()
    with acting_for("alice"):
        assert whoami() == f"alice by {own}"
        found: list[str] = []
        thread = threading.Thread(target=lambda: found.append(whoami()))
        thread.start()
        thread.join()
        assert found == [own]
    assert whoami() == own


def test_nobody_is_served_where_nobody_is_named() -> None:
    own = whoami()
    with acting_for(""):
        assert whoami() == own
