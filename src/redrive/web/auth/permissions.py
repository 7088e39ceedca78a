"""What a user may do: what the console allows, and the broker grants the user."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

from redrive.errors import BrokerUnavailable, ConfigurationError, PermissionDenied, RedriveError
from redrive.failures.jobs.job_record import JobRecord
from redrive.failures.message.mask import check_patch
from redrive.failures.queue.operator_rights import OperatorRights
from redrive.failures.queue.order import Order
from redrive.failures.store.masked_messages import check_filter
from redrive.redaction import in_one_line
from redrive.topology.doctor.act_rights import OperatorAct, rights_needed, rights_to_remark
from redrive.web.auth.access_config import Login
from redrive.web.console_settings import ConsoleSettings
from redrive.web.page_request import QueuePlace


@dataclass(frozen=True, slots=True)
class Permissions:
    """What a user may do.

    Args:
        settings: the console's settings, with the user to act as.
        rights: the user's rights at the broker.
    """

    settings: ConsoleSettings
    rights: OperatorRights

    @property
    def has_login(self) -> bool:
        """Whether each user logs in to the broker, with rights of their own."""
        return self.settings.access.login is Login.BROKER

    def may(self, act: OperatorAct, place: QueuePlace) -> bool:
        """Return whether the console permits an act on a queue and the broker grants the user the
        rights for it; False if the broker can't be asked."""
        if act is not OperatorAct.LOOK and not self.settings.allows(act):
            return False
        try:
            if act is OperatorAct.LOOK:
                return self._may_look(place)
            return not self.rights.missing(act, place.name, literal=place.literal)
        except (BrokerUnavailable, PermissionDenied):
            return False

    def why_not(self, order: Order, place: QueuePlace) -> str:
        """Return why an order can't be carried out here; empty if it can."""
        try:
            self.check_order(order, place)
        except RedriveError as error:
            return str(error)
        return ""

    def ask_rights(self, places: Iterable[QueuePlace]) -> None:
        """Check which queues the user may read, all at once: separate checks would each need a
        connection."""
        if not self.has_login:
            return
        rights = [
            right
            for place in places
            for right in rights_needed(
                OperatorAct.LOOK, place.name, self.settings.family, literal=place.literal
            )
        ]
        with contextlib.suppress(BrokerUnavailable):  # pages report it when they need a right
            self.rights.has(rights)

    def check_look(self, place: QueuePlace) -> None:
        """Check that the user may see the contents of a queue."""
        if not self._may_look(place):
            raise self._not_permitted(OperatorAct.LOOK, place)

    def check(self, act: OperatorAct, place: QueuePlace) -> None:
        """Check that the user may act on a queue."""
        if act is not OperatorAct.LOOK:
            self.settings.check_allowed(act)
        if self.rights.missing(act, place.name, literal=place.literal):
            raise self._not_permitted(act, place)

    def check_order(self, order: Order, place: QueuePlace) -> None:
        """Check that an order may be carried out here, whoever wrote it and however it is
        started."""
        if order.function is not None:
            raise ConfigurationError(
                (
                    f"this order changes bodies with the function {in_one_line(order.function)}, "
                    "and the console does not run functions"
                ),
                "Use redrive jobs on a machine that has the function.",
            )
        self.check(OperatorAct.EDIT if order.changes_bodies else OperatorAct.REQUEUE, place)
        if order.changes_bodies and self.settings.hide_bodies:
            raise ConfigurationError(
                "this order changes bodies, which this console hides",
                "Use redrive jobs, or a console without --hide-bodies.",
            )
        if order.edits and self.settings.mask is not None:
            raise ConfigurationError(
                "this order contains whole bodies, and this console masks parts of them",
                "Use redrive jobs, or a console without --mask.",
            )
        if self.settings.mask is not None:
            # Whoever wrote it: the messages that match would reveal masked values.
            check_filter(order.filter)
            if order.patch is not None:
                check_patch(self.settings.mask, order.patch)

    def check_remark(self) -> None:
        """Check that the user may add notes to causes, which the whole team sees."""
        if not self.has_login:
            return
        rights = rights_to_remark()
        missing = [
            right
            for right, is_had in zip(rights, self.rights.has(rights), strict=True)
            if not is_had
        ]
        if missing:
            raise PermissionDenied(
                (
                    f"the user {self.rights.user!r} may not add notes to causes: the "
                    "broker does not grant it"
                ),
                f"Grant the rights that a requeue needs: {', '.join(map(str, missing))}.",
            )

    def may_see(self, job: JobRecord) -> bool:
        """Return whether the user may see a job of the journal."""
        return self.may(OperatorAct.LOOK, QueuePlace(job.queue, job.literal))

    def _may_look(self, place: QueuePlace) -> bool:
        # Without a login, every user acts as the one who started the console, and owns the index.
        if not self.has_login:
            return True
        return not self.rights.missing(OperatorAct.LOOK, place.name, literal=place.literal)

    def _not_permitted(self, act: OperatorAct, place: QueuePlace) -> PermissionDenied:
        return PermissionDenied(
            (
                f"the user {self.rights.user!r} may not {act.value} in {place.name!r}: the "
                "broker does not grant it"
            ),
            "The page Me lists what is missing, and the command that grants it.",
        )
