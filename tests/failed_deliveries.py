"""Messages in a failed queue as hostile peers may leave them there, as a strategy."""

import json

from hypothesis import strategies as st

from deliveries import NOW_TEXT
from field_tables import QUEUE, field, long_value, properties, values
from redrive.amqp.field_table import Table
from redrive.topology import headers
from redrive.topology.headers import Delivery

_texts = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        [NOW_TEXT, "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2024-05-17", "\0"]
    ),
)
_our_fields = st.builds(
    field,
    st.sampled_from(sorted(headers.OURS)).map(str.encode),
    st.one_of(values, _texts.map(lambda text: long_value("S", text.encode()))),
)
_bodies = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=20).map(str.encode),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3),
    ).map(lambda value: json.dumps(value).encode()),
)


@st.composite
def failed_deliveries(draw: st.DrawFn) -> Delivery:
    """A message in a failed queue, with anything in it that a peer can send."""
    given_properties = draw(properties)
    own = draw(st.lists(_our_fields, max_size=8))
    table = Table.parse(given_properties.headers.encode() + b"".join(own))
    key = draw(st.binary(max_size=20)).decode("utf-8", "surrogateescape")
    return Delivery(QUEUE, "", key, given_properties._replace(headers=table), draw(_bodies))
