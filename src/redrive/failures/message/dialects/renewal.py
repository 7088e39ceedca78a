"""Remove a framework's notes about earlier failures from a message, keeping all other bytes."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from redrive.amqp.field_table import FieldValue, Table
from redrive.topology.headers import Delivery


@dataclass(frozen=True, slots=True)
class HeaderEdit:
    """Changes to the fields of a table.

    Args:
        drop: names of the fields to remove.
        drop_prefixes: prefixes of the names of further fields to remove.
        values: new values for fields that exist.
    """

    drop: frozenset[str] = frozenset()
    drop_prefixes: tuple[str, ...] = ()
    values: Mapping[str, FieldValue] = field(default_factory=dict)

    def __call__(self, table: Table) -> Table:
        """Return the edited table."""
        kept = table.without(self._drops)
        values = {name: value for name, value in self.values.items() if name in kept}
        return kept.with_values(values) if values else kept

    def _drops(self, name: str) -> bool:
        return name in self.drop or name.startswith(self.drop_prefixes)


def of_headers(edit: HeaderEdit) -> Callable[[Delivery], Delivery]:
    """Return a renewal that edits the headers."""

    def renew(delivery: Delivery) -> Delivery:
        return with_headers(delivery, edit(delivery.properties.headers))

    return renew


def of_table(name: str, edit: HeaderEdit) -> Callable[[Delivery], Delivery]:
    """Return a renewal that edits the table in one header."""

    def renew(delivery: Delivery) -> Delivery:
        raw = delivery.properties.headers.raw_by_name().get(name, b"")
        if raw[:1] != b"F":
            return delivery
        edited = edit(Table.parse(raw[5:])).encode()
        whole = b"F" + len(edited).to_bytes(4, "big") + edited
        return with_headers(delivery, delivery.properties.headers.with_fields([(name, whole)]))

    return renew


def with_headers(delivery: Delivery, headers: Table) -> Delivery:
    """Return the message with other headers."""
    return replace(delivery, properties=delivery.properties._replace(headers=headers))


def with_json(delivery: Delivery, value: Mapping[str, object]) -> Delivery:
    """Return the message with this value as its body, as compact ASCII JSON.

    A value nested too deep to be written leaves the message unchanged.
    """
    try:
        text = json.dumps(value, separators=(",", ":"))
    except RecursionError:
        return delivery
    return replace(delivery, body=text.encode())
