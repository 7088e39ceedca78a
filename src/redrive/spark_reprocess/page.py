"""The plan and what became of it as one page of HTML that needs nothing else: no script, no font, no picture from anywhere."""

from collections.abc import Iterable
from datetime import UTC, datetime
from html import escape

from redrive.redaction import printable, redact
from redrive.spark_reprocess.identity import Identity
from redrive.spark_reprocess.planning import Group, Plan

_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}
h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .5rem}p.note{color:#57606a;margin:.2rem 0}
.tiles{display:flex;flex-wrap:wrap;gap:1rem;margin:1.2rem 0}
.tile{border:1px solid #d0d7de;border-radius:6px;padding:.6rem 1rem;min-width:8rem}
.tile b{display:block;font-size:1.4rem;font-variant-numeric:tabular-nums}.tile span{color:#57606a}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.35rem .6rem;border-bottom:1px solid #d0d7de;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}td.text{overflow-wrap:anywhere}
.bar{background:#eaeef2;height:.55rem;width:9rem;border-radius:3px;overflow:hidden}.bar i{display:block;height:100%;background:#0969da}
svg{width:100%;height:11rem}svg rect{fill:#0969da}svg text{font-size:11px;fill:#57606a}
code{background:#f6f8fa;padding:.1rem .3rem;border-radius:4px}
.bad{color:#cf222e;font-weight:600}
@media (prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}.tile,th,td{border-color:#30363d}.bar{background:#21262d}
code{background:#161b22}p.note,.tile span,svg text{color:#8b949e;fill:#8b949e}.bar i,svg rect{background:#4493f8;fill:#4493f8}}
"""
_WIDTH, _HEIGHT, _FOOT = 1000, 180, 24


def page_of(plan: Plan, identity: Identity | None = None) -> str:
    """The page: the plan, and below it what became of the messages where that is known."""
    parts = [
        f"<h1>Failed messages, run {_text(plan.run)}</h1>",
        f'<p class="note">made {datetime.now(UTC):%Y-%m-%d %H:%M} UTC</p>',
        _tiles(plan, "drained" if identity else "in the archive, to decide on", "picked" if identity else "would be sent"),
        _choice(plan),
        _times(plan),
        "<h2>By cause</h2>",
        _groups(plan.groups, plan.count),
    ]
    if identity is not None:
        parts += ["<h2>What became of them</h2>", _outcome(identity)]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Failed messages, run {_text(plan.run)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def size_in_words(size: int) -> str:
    """`512 B`, `1.2 MiB`."""
    number = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def _tiles(plan: Plan, count: str, picked: str) -> str:
    tiles = [
        (f"{plan.count:,}", count),
        (f"{plan.picked:,}", picked),
        (str(len(plan.groups)), "causes"),
        (size_in_words(plan.size), "of bodies"),
        (size_in_words(plan.median), "median body"),
        (size_in_words(plan.largest), "largest body"),
    ]
    return (
        '<div class="tiles">'
        + "".join(f'<div class="tile"><b>{_text(value)}</b><span>{_text(name)}</span></div>' for value, name in tiles)
        + "</div>"
    )


def _choice(plan: Plan) -> str:
    where = f"where <code>{_text(plan.where)}</code>" if plan.where else "all of them"
    transform = f", changed by <code>{_text(plan.transform)}</code>" if plan.transform else ""
    return f"<p>Picked: {where}{transform}.</p>"


def _times(plan: Plan) -> str:
    if not plan.times:
        return '<p class="note">None of them says when it failed.</p>'
    first, last = plan.times[0][0].timestamp(), plan.times[-1][0].timestamp()
    slots = int((last - first) / plan.stretch_seconds) + 1
    most = max(count for _, count in plan.times)
    width = _WIDTH / slots
    bars = []
    for moment, count in plan.times:
        x = (moment.timestamp() - first) / plan.stretch_seconds * width
        height = max(1.0, count / most * (_HEIGHT - _FOOT))
        bars.append(
            f'<rect x="{x:.1f}" y="{_HEIGHT - _FOOT - height:.1f}" width="{max(1.0, width - 1):.1f}" height="{height:.1f}">'
            f"<title>{moment:%Y-%m-%d %H:%M:%S}: {count:,}</title></rect>"
        )
    ends = (
        f'<text x="0" y="{_HEIGHT - 6}">{plan.times[0][0]:%Y-%m-%d %H:%M:%S} UTC</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT - 6}" text-anchor="end">{plan.times[-1][0]:%Y-%m-%d %H:%M:%S} UTC</text>'
    )
    return (
        f"<h2>When they failed</h2><p class='note'>a bar is {plan.stretch_seconds:,} s, the highest {most:,} messages</p>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img" aria-label="messages by time">'
        f"{''.join(bars)}{ends}</svg>"
    )


def _groups(groups: Iterable[Group], total: int) -> str:
    rows = []
    for group in groups:
        share = 100 * group.count / total if total else 0
        rows.append(
            f'<tr><td class="n">{group.count:,}</td><td><div class="bar"><i style="width:{share:.1f}%"></i></div></td>'
            f'<td class="n">{group.picked:,}</td><td>{_text(group.queue)}</td><td>{_text(group.error_type or "not known")}</td>'
            f'<td class="text">{_text(group.error_message or "–")}</td><td class="n">{_text(size_in_words(group.size))}</td>'
            f"<td>{_time(group.first)}</td><td>{_time(group.last)}</td><td><code>{_text(group.id)}</code></td></tr>"
        )
    heads = ("messages", "", "picked", "queue", "error", "text of one", "size", "first", "last", "group")
    numbers = {"messages", "picked", "size"}
    head = "".join(f"<th{' class=n' if name in numbers else ''}>{name}</th>" for name in heads)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _outcome(identity: Identity) -> str:
    rows = "".join(
        f'<tr><td>{name}</td><td class="n">{count:,}</td></tr>'
        for name, count in (
            ("drained", identity.drained),
            ("redelivered", identity.redelivered),
            ("restored", identity.restored),
            ("kept in the archive", identity.kept),
            ("of these refused", identity.refused),
            ("discarded", identity.discarded),
            ("possible duplicates", identity.possible_duplicates),
        )
    )
    verdict = f"<p>{_text(str(identity))}</p>" if identity.holds else f'<p class="bad">It does not add up: {_text(str(identity))}</p>'
    refused = "".join(f"<li><code>{_text(one['id'])}</code> {_text(one['error'])}</li>" for one in identity.refusals)
    return f"{verdict}<table>{rows}</table>" + (f"<p>Could not be sent:</p><ul>{refused}</ul>" if refused else "")


def _time(moment: datetime | None) -> str:
    return "–" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}"


def _text(text: str) -> str:
    return escape(printable(redact(text)))
