"""Match binding patterns of topic exchanges: `*` is one word, `#` any number of words."""

from collections.abc import Iterator


def matches(pattern: str, routing_key: str) -> bool:
    """Return whether a topic exchange routes a message with this key to a queue bound with this
    pattern."""
    words, parts = _words(routing_key), _words(pattern)
    # reached[n]: the part of the pattern read so far matches the first n words.
    reached = [True] + [False] * len(words)
    for part in parts:
        if part == "#":
            first = reached.index(True) if True in reached else len(reached)
            reached = [place >= first for place in range(len(reached))]
        else:
            reached = [
                False,
                *(
                    before and part in ("*", word)
                    for before, word in zip(reached, words, strict=False)
                ),
            ]
    return reached[-1]


def literal_wildcards(pattern: str) -> list[str]:
    """Return the words of a pattern that mix a wildcard with other characters, where it has no
    special meaning."""
    return [word for word in _words(pattern) if word not in ("*", "#") and set(word) & set("*#")]


def _words(text: str) -> list[str]:
    return text.split(".") if text else []


def overlap(first: str, second: str) -> bool:
    """Return whether there is a routing key that both patterns match."""
    left, right = _words(first), _words(second)
    seen, waiting = {(0, 0)}, [(0, 0)]
    while waiting:
        at = waiting.pop()
        if at == (len(left), len(right)):
            return True
        for further in _further(left, right, at):
            if further not in seen:
                seen.add(further)
                waiting.append(further)
    return False


def _further(left: list[str], right: list[str], at: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yield the next positions in both patterns after one more word, or after the end of a `#`."""
    i, j = at
    one = left[i] if i < len(left) else None
    other = right[j] if j < len(right) else None
    if "#" in (one, other):
        # A `#` takes the other's word, or ends; two of them take each other's in turn.
        if one is not None:
            yield i + 1, j
        if other is not None:
            yield i, j + 1
    elif one is not None and other is not None and (one == other or "*" in (one, other)):
        yield i + 1, j + 1
