"""Coordinator that lets a message that may have killed a worker run alone in its process, so that
another crash can't be blamed on any other message.

A member that asks for the process makes all others stop taking messages and finish those in hand.
Then its message is handled, and after that all continue. There is one coordinator per process; its
members run on their own threads and event loops.
"""

import threading
from typing import Protocol


class Member(Protocol):
    """A running subscriber. Its methods are called from any thread, with no lock held, and return
    at once.

    Calls for two turns may arrive in a different order than they were made; compare turn numbers.
    """

    def pause(self, turn: int) -> None:
        """Take no more messages, and call `quiet` once nothing is in hand."""

    def run_alone(self) -> None:
        """Handle the suspect, and call `done` once it is settled."""

    def resume(self, turn: int) -> None:
        """Take messages again."""


class Isolation:
    """Gives one member at a time the whole process.

    It never blocks: members report events, from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._members: set[Member] = set()
        self._turn_of: Member | None = None
        self._turn = 0
        self._busy: set[Member] = set()
        """Members that still have messages in hand; empty once the suspect runs."""

    def join(self, member: Member) -> None:
        """Add a subscriber that starts."""
        with self._lock:
            self._members.add(member)
            if self._turn_of is None:
                return
            if self._busy:
                self._busy.add(member)
            turn = self._turn
        member.pause(turn)

    def leave(self, member: Member) -> None:
        """Remove a subscriber that has ended."""
        with self._lock:
            self._members.discard(member)
        self.done(member)
        self.quiet(member)

    def ask(self, member: Member) -> int | None:
        """Ask for the process, and return the turn; None if another turn is under way."""
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
        """Check whether it is this member's turn."""
        return self._turn_of is member

    def quiet(self, member: Member) -> None:
        """Record that a member has nothing in hand."""
        with self._lock:
            begins = self._turn_of if self._busy == {member} else None
            self._busy.discard(member)
        if begins is not None:
            begins.run_alone()

    def waited(self, turn: int) -> bool:
        """Stop waiting for busy members, and run the suspect; return False if that turn is not
        waiting."""
        with self._lock:
            begins = self._turn_of if self._turn == turn and self._busy else None
            if begins is not None:
                self._busy = set()
        if begins is None:
            return False
        begins.run_alone()
        return True

    def done(self, member: Member) -> None:
        """End a member's turn, if it has one."""
        with self._lock:
            if self._turn_of is not member:
                return
            self._turn_of = None
            self._busy = set()
            members, turn = list(self._members), self._turn
        for one in members:
            one.resume(turn)


of_this_process = Isolation()
