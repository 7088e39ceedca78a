"""Read a team's topology file (YAML) and report mistakes with file, line and key.

Needs PyYAML (`pip install redrive[cli]`).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redrive.errors import ConfigurationError
from redrive.topology import file_schema
from redrive.topology.file_schema import InvalidSpec, Location, TopologySpec

if TYPE_CHECKING:
    from yaml import MappingNode, Node

_MOST_BYTES = 16 * 1024 * 1024
_QUOTE_IT = "Put a pattern that begins with * or # into quotes: '*.paid'."


def read(path: Path) -> TopologySpec:
    """Read the topology from a file."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigurationError(f"{path} is larger than 16 MiB", "Give a topology file.")
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"{path} is not UTF-8 text (byte {error.start})", "Give a topology file in YAML."
        ) from error
    except OSError as error:
        raise ConfigurationError(
            f"the topology file {str(path)!r} can't be read: {error.strerror}",
            "`redrive topology init` writes one.",
        ) from error
    return parse(text, str(path))


def parse(text: str, name: str) -> TopologySpec:
    """Parse a topology in YAML; `name` is the file name shown in errors."""
    root = _root_of(text, name)
    doubled = next(_doubled_keys(root, ()), None) if root is not None else None
    if doubled is not None:
        location, line, first = doubled
        raise ConfigurationError(
            f"{_place(name, line, location)}: the key appears twice, first in line {first}",
            "Keep one of them.",
        )
    try:
        return file_schema.parse(_value_of(root, name))
    except InvalidSpec as error:
        raise _located(error, root, name) from error


def _root_of(text: str, name: str) -> "Node | None":
    """Return the document's root node; nodes know their lines."""
    try:
        import yaml
    except ImportError as error:
        raise ConfigurationError(
            "topology files need PyYAML, which is not installed", "pip install 'redrive[cli]'"
        ) from error
    try:
        root: Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        remedy = _QUOTE_IT if "alias" in str(error) else "Correct the YAML there."
        raise ConfigurationError(
            f"{name}, line {line}: {error.problem or error.context}", remedy
        ) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigurationError(
            f"{name} is not valid YAML: {' '.join(str(error).split())}", "Correct it."
        ) from error
    return root


def _value_of(root: "Node | None", name: str) -> object:
    import yaml

    if root is None:
        return None
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise ConfigurationError(
            f"{name}, line {line}: {error.problem}", "Correct the YAML there."
        ) from error
    except ValueError as error:  # an invalid date, for example
        raise ConfigurationError(
            f"{name} has a value that can't be read: {error}", "Put it into quotes."
        ) from error
    finally:
        loader.dispose()


def _doubled_keys(
    node: "Node", location: Location, seen: frozenset[int] = frozenset()
) -> Iterator[tuple[Location, int, int]]:
    """Yield keys that appear twice in one mapping; YAML itself would keep the last one silently."""
    import yaml

    if id(node) in seen:
        return
    inside = seen | {id(node)}
    if isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            yield from _doubled_keys(item, (*location, position), inside)
    elif isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in lines and name != "<<":
                yield (*location, name), line, lines[name]
            lines.setdefault(name, line)
            yield from _doubled_keys(value, (*location, name), inside)


def _located(error: InvalidSpec, root: "Node | None", name: str) -> ConfigurationError:
    """Convert the first mistake in the file's order, noting how many follow."""
    found = sorted(
        ((_line_of(root, problem.location), problem) for problem in error.problems),
        key=lambda pair: pair[0],
    )
    line, first = found[0]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return ConfigurationError(
        f"{_place(name, line, first.location)}: {first.problem}{more}", first.remedy
    )


def _place(name: str, line: int, location: Location) -> str:
    path = " → ".join(map(str, location))
    return f"{name}, line {line}" + (f", {path}" if path else "")


def _line_of(root: "Node | None", location: Location) -> int:
    """Return the line of a location, or of its innermost part that exists."""
    import yaml

    if root is None:
        return 1
    node, line = root, root.start_mark.line
    for part in location:
        if isinstance(node, yaml.MappingNode):
            found = _entry(node, part)
            if found is None:
                break
            line, node = found[0].start_mark.line, found[1]
        elif (
            isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value)
        ):
            node = node.value[part]
            line = node.start_mark.line
    return line + 1


def _entry(node: "MappingNode", key: Any) -> "tuple[Node, Node] | None":
    return next(((name, value) for name, value in node.value if str(name.value) == str(key)), None)
