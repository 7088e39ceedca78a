"""What may have killed a worker is handled alone in its process, so that a further crash convicts
nobody else.

The one whose turn it is has all others take no more and finish what they have in hand; then its
message is handled, and after that all go on. One coordinator for a process: its members are on
threads and event loops of their own.
"""

import threading
from typing import Protocol


class Member(Protocol):
    """A running subscriber. Each is called from any thread, with no lock held, and returns at once.

    Calls of two turns may come in another order than they were made in; their numbers tell.
    """

    def pause(self, turn: int) -> None:
        """Take no more messages, and call `quiet` once nothing is in hand any more."""

    def run_alone(self) -> None:
        """Handle the suspect, and call `done` once it is settled."""

    def resume(self, turn: int) -> None:
        """Take messages again."""


class Isolation:
    """Gives one member at a time the whole process.

    It waits for nothing: members tell it what has happened, from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._members: set[Member] = set()
        self._turn_of: Member | None = None
        self._turn = 0
        self._busy: set[Member] = set()
        """Those that have not finished what they have in hand; none once the suspect runs."""

    def join(self, member: Member) -> None:
        """Count a subscriber that begins."""
        with self._lock:
            self._members.add(member)
            if self._turn_of is None:
                return
            if self._busy:
                self._busy.add(member)
            turn = self._turn
        member.pause(turn)

    def leave(self, member: Member) -> None:
        """Leave a subscriber out of account that has ended."""
        with self._lock:
            self._members.discard(member)
        self.done(member)
        self.quiet(member)

    def ask(self, member: Member) -> int | None:
        """Ask for the process."""
        with self._lock:
            if self._turn_of is not None:
                return None
            self._turn_of = member
            self._turn += 1
            turn = self._turn
            self._busy = set(self._members)
            members = list(self._members)
        for one in members:
            one.pause(turn)
        return turn

    def is_turn_of(self, member: Member) -> bool:
        """Whether the process is this member's."""
        return self._turn_of is member

    def quiet(self, member: Member) -> None:
        """Note that a member has nothing in hand."""
        with self._lock:
            begins = self._turn_of if self._busy == {member} else None
            self._busy.discard(member)
        if begins is not None:
            begins.run_alone()

    def waited(self, turn: int) -> bool:
        """Wait no longer for members that are not quiet; False where that turn waits for none."""
        with self._lock:
            begins = self._turn_of if self._turn == turn and self._busy else None
            if begins is not None:
                self._busy = set()
        if begins is None:
            return False
        begins.run_alone()
        return True

    def done(self, member: Member) -> None:
        """End a member's turn; nothing where it has none."""
        with self._lock:
            if self._turn_of is not member:
                return
            self._turn_of = None
            self._busy = set()
            members, turn = list(self._members), self._turn
        for one in members:
            one.resume(turn)


of_this_process = Isolation()
