"""What a client asks for on a channel, but for publishing: each method of AMQP, and its answer."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from redrive.amqp.frames import method_frame
from redrive.testing.memory import method_arguments as encoded
from redrive.testing.memory.exchange_model import BindingModel, ExchangeModel
from redrive.testing.memory.method_arguments import MethodArguments
from redrive.testing.memory.refused import NOT_IMPLEMENTED, RefusedByModel
from redrive.testing.memory.session_channel import SessionChannel
from redrive.testing.memory.virtual_host import VirtualHost

_EXCHANGE, _QUEUE, _BASIC, _CONFIRM, _TX = 40, 50, 60, 85, 90


class _Asked(NamedTuple):
    """A method, with whom it is from."""

    host: VirtualHost
    session: object
    channel: SessionChannel
    write: Callable[[bytes], None]
    arguments: MethodArguments

    def answer(self, class_id: int, method: int, arguments: bytes = b"") -> None:
        """Answers it."""
        self.write(method_frame(self.channel.number, class_id, method, arguments))


def carry_out(
    host: VirtualHost,
    session: object,
    channel: SessionChannel,
    write: Callable[[bytes], None],
    method: tuple[int, int],
    payload: bytes,
) -> None:
    """Does what a method asks for.

    Args:
        host: the virtual host.
        session: the connection, to which exclusive queues belong.
        channel: the channel.
        write: sends frames to the client.
        method: the method's class and number.
        payload: its frame without its envelope.

    Raises:
        RefusedByModel: it can't be done.
    """
    does = _METHODS.get(method)
    if does is None:
        raise RefusedByModel(NOT_IMPLEMENTED, f"method {method[0]}.{method[1]}")
    does(_Asked(host, session, channel, write, MethodArguments(payload)))


# --- exchanges ------------------------------------------------------------------------------------


def _declare_exchange(asked: _Asked) -> None:
    arguments = asked.arguments
    arguments.short()
    name, kind = arguments.text(), arguments.text()
    passive, durable, auto_delete, internal, no_wait = arguments.bits(5)
    wanted = ExchangeModel(
        name,
        kind,
        durable=durable,
        auto_delete=auto_delete,
        internal=internal,
        arguments=arguments.table(),
    )
    asked.host.declare_exchange(wanted, passive=passive)
    if not no_wait:
        asked.answer(_EXCHANGE, 11)


def _delete_exchange(asked: _Asked) -> None:
    asked.arguments.short()
    name = asked.arguments.text()
    if_unused, no_wait = asked.arguments.bits(2)
    asked.host.delete_exchange(name, if_unused=if_unused)
    if not no_wait:
        asked.answer(_EXCHANGE, 21)


def _bind_exchange(asked: _Asked) -> None:
    source, binding, no_wait = _binding(asked.arguments, to_queue=False, has_no_wait=True)
    asked.host.bind(source, binding)
    if not no_wait:
        asked.answer(_EXCHANGE, 31)


def _unbind_exchange(asked: _Asked) -> None:
    source, binding, no_wait = _binding(asked.arguments, to_queue=False, has_no_wait=True)
    asked.host.unbind(source, binding)
    if not no_wait:
        asked.answer(_EXCHANGE, 51)


def _binding(
    arguments: MethodArguments, *, to_queue: bool, has_no_wait: bool
) -> tuple[str, BindingModel, bool]:
    arguments.short()
    destination, source, key = arguments.text(), arguments.text(), arguments.text()
    no_wait = arguments.bits(1)[0] if has_no_wait else False
    return source, BindingModel(destination, to_queue, key, arguments.table()), no_wait


# --- queues ---------------------------------------------------------------------------------------


def _declare_queue(asked: _Asked) -> None:
    arguments = asked.arguments
    arguments.short()
    name = arguments.text()
    passive, durable, exclusive, auto_delete, no_wait = arguments.bits(5)
    if passive:
        queue = asked.host.queue(name, asked.session)
    else:
        queue = asked.host.declare_queue(
            name,
            arguments.table(),
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            owner=asked.session,
        )
    asked.host.run()
    if not no_wait:
        counts = encoded.long(len(queue)) + encoded.long(len(queue.consumers))
        asked.answer(_QUEUE, 11, encoded.text(queue.name) + counts)


def _bind_queue(asked: _Asked) -> None:
    source, binding, no_wait = _binding(asked.arguments, to_queue=True, has_no_wait=True)
    asked.host.bind(source, binding)
    if not no_wait:
        asked.answer(_QUEUE, 21)


def _unbind_queue(asked: _Asked) -> None:
    source, binding, _ = _binding(asked.arguments, to_queue=True, has_no_wait=False)
    asked.host.unbind(source, binding)
    asked.answer(_QUEUE, 51)


def _purge_queue(asked: _Asked) -> None:
    asked.arguments.short()
    queue = asked.host.queue(asked.arguments.text(), asked.session)
    (no_wait,) = asked.arguments.bits(1)
    count = queue.purge()
    if not no_wait:
        asked.answer(_QUEUE, 31, encoded.long(count))


def _delete_queue(asked: _Asked) -> None:
    asked.arguments.short()
    name = asked.arguments.text()
    if_unused, if_empty, no_wait = asked.arguments.bits(3)
    count = asked.host.delete_queue(name, asked.session, if_unused=if_unused, if_empty=if_empty)
    if not no_wait:
        asked.answer(_QUEUE, 41, encoded.long(count))


# --- messages -------------------------------------------------------------------------------------


def _limit(asked: _Asked) -> None:
    asked.arguments.long()
    asked.channel.prefetch = asked.arguments.short()
    asked.answer(_BASIC, 11)


def _consume(asked: _Asked) -> None:
    arguments = asked.arguments
    arguments.short()
    name, tag = arguments.text(), arguments.text()
    _, no_ack, exclusive, no_wait = arguments.bits(4)
    priority = arguments.table().get("x-priority")
    queue = asked.host.queue(name, asked.session)
    tag = tag or asked.channel.new_tag()
    asked.channel.consume(
        queue,
        tag,
        priority=priority if isinstance(priority, int) else 0,
        no_ack=no_ack,
        exclusive=exclusive,
    )
    if not no_wait:
        asked.answer(_BASIC, 21, encoded.text(tag))


def _cancel(asked: _Asked) -> None:
    tag = asked.arguments.text()
    (no_wait,) = asked.arguments.bits(1)
    asked.channel.cancel(tag)
    if not no_wait:
        asked.answer(_BASIC, 31, encoded.text(tag))


def _get(asked: _Asked) -> None:
    asked.arguments.short()
    queue = asked.host.queue(asked.arguments.text(), asked.session)
    (no_ack,) = asked.arguments.bits(1)
    asked.host.run()
    asked.channel.get(queue, no_ack=no_ack)


def _ack(asked: _Asked) -> None:
    tag = asked.arguments.longlong()
    (multiple,) = asked.arguments.bits(1)
    asked.channel.ack(tag, multiple=multiple)


def _reject(asked: _Asked) -> None:
    tag = asked.arguments.longlong()
    (requeue,) = asked.arguments.bits(1)
    asked.channel.reject(tag, multiple=False, requeue=requeue, failed=True)


def _nack(asked: _Asked) -> None:
    tag = asked.arguments.longlong()
    multiple, requeue = asked.arguments.bits(2)
    asked.channel.reject(tag, multiple=multiple, requeue=requeue, failed=False)


def _recover(asked: _Asked) -> None:
    asked.channel.recover()
    asked.answer(_BASIC, 111)


# --- confirms and transactions --------------------------------------------------------------------


def _confirm(asked: _Asked) -> None:
    asked.channel.confirms = True
    asked.answer(_CONFIRM, 11)


def _select(asked: _Asked) -> None:
    asked.channel.transaction = []
    asked.answer(_TX, 11)


def _commit(asked: _Asked) -> None:
    asked.channel.commit()
    asked.answer(_TX, 21)


def _roll_back(asked: _Asked) -> None:
    asked.channel.transaction = []
    asked.answer(_TX, 31)


_METHODS: Mapping[tuple[int, int], Callable[[_Asked], None]] = {
    (_EXCHANGE, 10): _declare_exchange,
    (_EXCHANGE, 20): _delete_exchange,
    (_EXCHANGE, 30): _bind_exchange,
    (_EXCHANGE, 40): _unbind_exchange,
    (_QUEUE, 10): _declare_queue,
    (_QUEUE, 20): _bind_queue,
    (_QUEUE, 30): _purge_queue,
    (_QUEUE, 40): _delete_queue,
    (_QUEUE, 50): _unbind_queue,
    (_BASIC, 10): _limit,
    (_BASIC, 20): _consume,
    (_BASIC, 30): _cancel,
    (_BASIC, 70): _get,
    (_BASIC, 80): _ack,
    (_BASIC, 90): _reject,
    (_BASIC, 110): _recover,
    (_BASIC, 120): _nack,
    (_CONFIRM, 10): _confirm,
    (_TX, 10): _select,
    (_TX, 20): _commit,
    (_TX, 30): _roll_back,
}
