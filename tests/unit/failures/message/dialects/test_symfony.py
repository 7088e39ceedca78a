"""What Symfony has serialized in PHP is sent again without its stamp of the failure transport, or
as it is."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from framework_messages import SYMFONY_IN_PHP
from redrive.failures.message.dialects import symfony

ENVELOPE = (
    rb"O:36:\"Symfony\\Component\\Messenger\\Envelope\":2:{s:44:\"\0Symfony\\Component\\Mes"
    rb"senger\\Envelope\0stamps\";a:4:{s:46:\"Symfony\\Component\\Messenger\\Stamp\\BusName"
    rb"Stamp\";a:1:{i:0;O:46:\"Symfony\\Component\\Messenger\\Stamp\\BusNameStamp\":1:{s:55"
    rb":\"\0Symfony\\Component\\Messenger\\Stamp\\BusNameStamp\0busName\";s:3:\"bus\";}}s:6"
    rb"1:\"Symfony\\Component\\Messenger\\Stamp\\SentToFailureTransportStamp\";a:1:{i:0;O:6"
    rb"1:\"Symfony\\Component\\Messenger\\Stamp\\SentToFailureTransportStamp\":1:{s:83:\"\0"
    rb"Symfony\\Component\\Messenger\\Stamp\\SentToFailureTransportStamp\0originalReceiverN"
    rb"ame\";s:5:\"async\";}}s:44:\"Symfony\\Component\\Messenger\\Stamp\\DelayStamp\";a:1:"
    rb"{i:0;O:44:\"Symfony\\Component\\Messenger\\Stamp\\DelayStamp\":1:{s:51:\"\0Symfony"
    rb"\\Component\\Messenger\\Stamp\\DelayStamp\0delay\";i:0;}}s:49:\"Symfony\\Component"
    rb"\\Messenger\\Stamp\\RedeliveryStamp\";a:1:{i:0;O:49:\"Symfony\\Component\\Messenger"
    rb"\\Stamp\\RedeliveryStamp\":2:{s:64:\"\0Symfony\\Component\\Messenger\\Stamp\\Redeliv"
    rb"eryStamp\0redeliveredAt\";O:17:\"DateTimeImmutable\":3:{s:4:\"date\";s:26:\"2026-03-"
    rb"01 12:00:00.000000\";s:13:\"timezone_type\";i:1;s:8:\"timezone\";s:6:\"+00:00\";}s:6"
    rb"1:\"\0Symfony\\Component\\Messenger\\Stamp\\RedeliveryStamp\0retryCount\";i:0;}}}s:4"
    rb"5:\"\0Symfony\\Component\\Messenger\\Envelope\0message\";O:6:\"Charge\":3:{s:2:\"id"
    rb"\";s:8:\"it"
    rb"""\'s \"7\"\";s:1:\"a\";N;s:1:\"b\";N;}}"""
)
"""What symfony/messenger 7.1.5 wrote on PHP 8.2 of an envelope with a BusNameStamp and the stamps
of the failure transport."""
SENT = (
    rb"s:61:\"Symfony\\Component\\Messenger\\Stamp\\SentToFailureTransportStamp\";a:1:{i:0;O:61:"
    rb"\"Symfony\\Component\\Messenger\\Stamp\\SentToFailureTransportStamp\":1:{s:83:\"\0Symfony"
    rb"\\Component\\Messenger\\Stamp\\SentToFailureTransportStamp\0originalReceiverName\";s:5:\"a"
    rb"sync\";}}"
)


def sent_again(body: bytes) -> bytes:
    return symfony.DIALECT.renew(replace(SYMFONY_IN_PHP, body=body)).body


def test_the_stamp_of_the_failure_transport_is_taken_out_and_nothing_else() -> None:
    assert ENVELOPE.count(SENT) == 1
    # Symfony 7.1.5 itself reads this, and finds no such stamp.
    expected = ENVELOPE.replace(SENT, b"").replace(rb"stamps\";a:4:", rb"stamps\";a:3:")
    assert sent_again(ENVELOPE) == expected != ENVELOPE


def test_an_envelope_that_was_never_there_stays_as_it_is() -> None:
    without = sent_again(ENVELOPE)
    assert sent_again(without) == without


def test_where_a_value_refers_to_another_by_its_number_all_stays() -> None:
    referring = ENVELOPE.replace(rb"s:1:\"b\";N;", rb"s:1:\"b\";r:21;")
    assert referring != ENVELOPE
    assert sent_again(referring) == referring


def test_the_words_in_the_text_of_a_message_are_no_stamp() -> None:
    without = sent_again(ENVELOPE)
    text = rb"s:61:\"Symfony\\Component\\Messenger\\Stamp\\SentToFailureTransportStamp\";"
    holding = without.replace(rb"s:1:\"b\";N;", rb"s:1:\"b\";" + text)
    assert holding != without
    assert sent_again(holding) == holding


@given(st.integers(0, len(ENVELOPE)), st.binary(max_size=4), st.integers(0, 40))
def test_damage_is_sent_as_it_is_or_without_the_stamp_and_raises_nothing(
    place: int, other: bytes, gone: int
) -> None:
    damaged = b"O:" + ENVELOPE[2:place] + other + ENVELOPE[place + gone :]
    found = sent_again(damaged)
    assert found == damaged or len(found) < len(damaged)


def test_what_is_nested_too_deep_is_sent_as_it_is() -> None:
    deep = ENVELOPE.replace(rb"s:1:\"b\";N;", rb"s:1:\"b\";" + b"a:1:{i:0;" * 5000)
    assert sent_again(deep) == deep
