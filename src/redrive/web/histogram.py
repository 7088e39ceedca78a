"""Draws when messages failed, as SVG."""

from markupsafe import Markup, escape

from redrive.failures.groups import Group

_BINS = 24
_BAR, _GAP, _HEIGHT = 6, 2, 28


def drawn(group: Group, label: str = "When they failed") -> Markup:
    """A group's histogram; nothing where nobody knows when its messages failed."""
    if group.first is None:
        return Markup("")
    counts, before, after = group.histogram(_BINS)
    most = max(counts)
    bars = Markup("").join(
        _bar(number, -(-count * _HEIGHT // most)) for number, count in enumerate(counts) if count
    )
    around = f"; {before + after:,} long before or after" if before + after else ""
    return Markup(
        '<svg class="histogram" role="img" aria-label="{}" viewBox="0 0 {} {}" width="{}" '
        'height="{}">{}</svg>'
    ).format(
        f"{label}: {most:,} at most in one of {_BINS} parts of the time{around}",
        _BINS * (_BAR + _GAP),
        _HEIGHT,
        _BINS * (_BAR + _GAP),
        _HEIGHT,
        bars,
    )


def _bar(number: int, height: int) -> Markup:
    return Markup('<rect x="{}" y="{}" width="{}" height="{}"/>').format(
        number * (_BAR + _GAP), _HEIGHT - height, _BAR, escape(str(height))
    )
