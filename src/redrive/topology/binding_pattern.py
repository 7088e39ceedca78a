"""Binding patterns of a topic exchange: `*` is one word, `#` any number of them."""


def matches(pattern: str, routing_key: str) -> bool:
    """Whether a topic exchange gives a message with this key to a queue that is bound with this
    pattern."""
    words, parts = _words(routing_key), _words(pattern)
    # reached[n]: what was read of the pattern matches the first n words.
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


def _words(text: str) -> list[str]:
    return text.split(".") if text else []
