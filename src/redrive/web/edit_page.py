"""The page that edits one message's body and requeues the message."""

import base64

from starlette.responses import RedirectResponse, Response

from redrive.errors import ConfigurationError, RedriveError
from redrive.failures.failed_queue import plan_order
from redrive.failures.message.edit import as_before, difference, laid_out
from redrive.failures.message.failed_message import FailedMessage
from redrive.failures.message.readable_values import body_text_of, is_json, plain_of
from redrive.failures.queue.order import Order
from redrive.failures.queue.plan import Plan
from redrive.failures.store.filter import Filter
from redrive.failures.store.look import Look
from redrive.redaction import printable
from redrive.topology.doctor.act_rights import OperatorAct
from redrive.web.command_lines import edit_command
from redrive.web.context import ConsoleContext
from redrive.web.page_request import PageRequest

_MOST_BYTES = 128 * 1024


def show(context: ConsoleContext, request: PageRequest) -> Response:
    """Show the body of a message for editing."""
    message, look = _message(context, request)
    return _page(context, request, message, look, _shown(message))


def compare(context: ConsoleContext, request: PageRequest) -> Response:
    """Show the edited body and how it differs from the broker's."""
    message, look = _message(context, request)
    return _page(context, request, message, look, _typed(request))


def send(context: ConsoleContext, request: PageRequest) -> Response:
    """Requeue the message with the edited body, and show the job."""
    context.permissions.check(OperatorAct.EDIT, request.place)
    message, look = _message(context, request)
    try:
        reason = request.reason
        request.check_reason()
        body = _edited(message, _typed(request))
        if body == message.body:
            raise ConfigurationError(
                "nothing has changed",
                "Edit the body, or requeue the message as it is.",
            )
        _check_json(message, body)
        order = _order(message, body)
        plan = _plan(context, request, order, message)
        if not plan.count:
            raise ConfigurationError(
                "this message can't be requeued",
                "It was requeued too often, or it does not record where it failed.",
            )
        place = request.place
        id_ = context.worker.begin(place, context.looks.queue(place), order, plan, reason)
    except RedriveError as error:
        return _page(context, request, message, look, _typed(request), str(error))
    return RedirectResponse(request.link("/job", {"id": id_}), 303)


def _message(context: ConsoleContext, request: PageRequest) -> tuple[FailedMessage, Look]:
    """Return the requested message, if its body can be edited as text."""
    if context.settings.hide_bodies:
        raise ConfigurationError(
            "this console hides bodies",
            "Start it without --hide-bodies to edit them.",
        )
    if context.settings.mask is not None:
        raise ConfigurationError(
            "this console masks parts of bodies, which would be sent masked",
            "Use redrive failed requeue with --edit or --patch.",
        )
    id_ = request.text("id")
    message, look = context.looks.ask(request.place, lambda look: look.named(id_))
    is_text = body_text_of(message) is not None and len(plain_of(message)) <= _MOST_BYTES
    # A body that a page shows escaped would be sent escaped.
    if not is_text or printable(_shown(message)) != _shown(message):
        raise ConfigurationError(
            ("this body can't be edited here: it is not plain text, or it is too long"),
            "Use redrive failed requeue with --edit, --patch or --transform.",
        )
    return message, look


def _shown(message: FailedMessage) -> str:
    """Return the body as it is edited: JSON with a line for each value."""
    body = plain_of(message)
    return (laid_out(body) or body).decode()


def _typed(request: PageRequest) -> str:
    # Browsers send line ends as CR LF.
    return request.values.get("body", "").replace("\r\n", "\n")


def _edited(message: FailedMessage, typed: str) -> bytes:
    """Return the edited body in the layout that the original had."""
    if typed.rstrip("\n") == _shown(message).rstrip("\n"):
        return message.body
    edited, body = typed.encode(), plain_of(message)
    return edited if laid_out(body) is None else as_before(body, edited)


def _check_json(message: FailedMessage, body: bytes) -> None:
    if is_json(plain_of(message)) and body != message.body and not is_json(body):
        raise ConfigurationError(
            "the body was valid JSON, and the edited one is not",
            "Check commas, quotes and brackets.",
        )


def _order(message: FailedMessage, body: bytes) -> Order:
    """Return an order that sends only this message, and only while its body is the one that was
    edited: another body has another digest."""
    return Order(
        Filter(digests=frozenset({message.digest})),
        edits={message.digest: base64.b64encode(body).decode()},
    )


def _plan(
    context: ConsoleContext, request: PageRequest, order: Order, message: FailedMessage
) -> Plan:
    return plan_order(context.looks.queue(request.place), order, [message])


def _page(
    context: ConsoleContext,
    request: PageRequest,
    message: FailedMessage,
    look: Look,
    typed: str,
    problem: str = "",
) -> Response:
    body = _edited(message, typed)
    if not problem:
        try:
            _check_json(message, body)
        except ConfigurationError as error:
            problem = str(error)
    return context.page(
        "edit",
        request,
        "Edit message",
        {
            "place": request.place,
            "standing": context.queue_states.state(request.place, look),
            "message": message,
            "typed": typed,
            "difference": difference(message, body),
            "is_changed": body != message.body,
            "reason": request.text("reason"),
            "may_send": context.permissions.may(OperatorAct.EDIT, request.place),
            "problem": problem,
            "command": edit_command(request.place, message.failure_id, request.reason),
        },
        400 if problem else 200,
    )
