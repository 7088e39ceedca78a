"""Pausing a subscription from its queue's page."""

from starlette.responses import RedirectResponse, Response

from redrive.errors import ConfigurationError
from redrive.failures.queue.pauses import order
from redrive.failures.store.operator_name import acting_for
from redrive.topology.control import Action
from redrive.topology.doctor.act_rights import OperatorAct
from redrive.web.context import ConsoleContext
from redrive.web.page_request import PageRequest


def pause(context: ConsoleContext, request: PageRequest) -> Response:
    """Pause the subscription, and return to its page."""
    if not request.reason:
        raise ConfigurationError("no reason given", "Give one: workers and pages show it.")
    return _write(context, request, "pause", request.text("for").strip() or None)


def resume(context: ConsoleContext, request: PageRequest) -> Response:
    """End the pause, and return to the page."""
    return _write(context, request, "resume", None)


def _write(
    context: ConsoleContext, request: PageRequest, action: Action, duration: str | None
) -> Response:
    place = request.place
    if place.literal:
        raise ConfigurationError(
            f"{place.name} is a dead-letter queue", "Pause the subscription that works on messages."
        )
    context.permissions.check(OperatorAct.PAUSE, place)
    settings = context.settings
    with acting_for(settings.operator):
        order(
            settings.url,
            settings.family,
            place.name,
            action,
            reason=request.reason,
            duration=duration,
        )
    context.queue_states.forget_controls()
    return RedirectResponse(request.link("/causes", place.asks), 303)
