"""Render the plan and the outcome of a run as one self-contained HTML page: no external scripts,
fonts or images."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from html import escape

from redrive.duration_text import format_duration
from redrive.number_text import size_in_words
from redrive.redaction import printable, redact
from redrive.spark_reprocess.reconciliation import Reconciliation
from redrive.spark_reprocess.run_plan import RunGroup, RunPlan

_STYLE = """
:root{color-scheme:light dark;--text:#1b1f24;--quiet:#57606a;--line:#d0d7de;--back:#fff;
--track:#eaeef2;--bar:#0969da;--good:#1a7f37;--bad:#cf222e;--warn:#9a6700;--code:#f6f8fa}
@media (prefers-color-scheme:dark){:root{--text:#e6edf3;--quiet:#8b949e;--line:#30363d;
--back:#0d1117;--track:#21262d;--bar:#4493f8;--good:#3fb950;--bad:#f85149;--warn:#d29922;
--code:#161b22}}
body{font:15px/1.45 system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 1rem;
color:var(--text);background:var(--back);overflow-wrap:anywhere}
h1{font-size:1.5rem;margin:0}
h2{font-size:1.1rem;margin:2rem 0 .5rem}
p{margin:.4rem 0}
.note{color:var(--quiet)}
.verdict{font-size:1.15rem;font-weight:600;padding:.6rem 1rem;margin:1rem 0;
border-left:.3rem solid var(--good);color:var(--good)}
.verdict.bad{border-color:var(--bad);color:var(--bad)}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(9.5rem,1fr));gap:.8rem;
margin:1rem 0}
.tile{border:1px solid var(--line);border-radius:6px;padding:.6rem 1rem}
.tile b{display:block;font-size:1.4rem;font-variant-numeric:tabular-nums}
.tile span{color:var(--quiet)}
.tile.good b{color:var(--good)}
.tile.bad b{color:var(--bad)}
.tile.warn b{color:var(--warn)}
code{background:var(--code);padding:.1rem .3rem;border-radius:4px}
.chart{display:grid;grid-template-columns:auto 1fr;gap:.2rem .6rem;color:var(--quiet);
font-size:.8rem}
.chart svg{width:100%;height:9rem;border-left:1px solid var(--line);
border-bottom:1px solid var(--line)}
.chart rect{fill:var(--bar)}
.scale{display:flex;flex-direction:column;justify-content:space-between;text-align:right}
.ends{grid-column:2;display:flex;justify-content:space-between;gap:1rem}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.4rem .6rem;border-bottom:1px solid var(--line);vertical-align:top}
th{color:var(--quiet);font-weight:500}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td.queue{max-width:14rem}
td code{white-space:nowrap}
td.error{min-width:18rem;width:40%}
td.error span{display:-webkit-box;-webkit-box-orient:vertical;-webkit-line-clamp:3;overflow:hidden}
td.when{white-space:nowrap}
.track{background:var(--track);height:.35rem;width:6rem;border-radius:3px;overflow:hidden;
margin:.3rem 0 0 auto}
.track i{display:block;height:100%;background:var(--bar)}
@media (max-width:50rem){
table,tbody,tr,td{display:block}
thead{display:none}
tr{border:1px solid var(--line);border-radius:6px;padding:.4rem .8rem;margin:.6rem 0}
td,td.n,td.error,td.queue{border:0;padding:.15rem 0;text-align:left;max-width:none;min-width:0;
width:auto;white-space:normal}
td::before{content:attr(data-is) " ";color:var(--quiet)}
.track{margin-left:0;width:100%}}
"""
_WIDTH, _HEIGHT = 1000, 100


def page_of(plan: RunPlan, identity: Reconciliation | None = None) -> str:
    """Return the page: the outcome of the messages, if known, then the plan."""
    queues = sorted({group.queue for group in plan.groups}) if identity is None else identity.queues
    title = f"Failed messages of {', '.join(queues) or 'no queue'}"
    now = datetime.now(UTC)
    parts = [
        f"<h1>{_text(title)}</h1>",
        f'<p class="note">{now:%Y-%m-%d %H:%M} UTC, run {_text(plan.run)}</p>',
        "" if identity is None else _outcome(identity),
        "<h2>Messages of the run</h2>" if identity else "",
        _tiles(plan, *(("drained", "chosen") if identity else ("to decide on", "would be sent"))),
        _choice(plan),
        _times(plan),
        "<h2>By cause</h2>",
        _groups(plan.groups, plan.count),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width,initial-scale=1">'
        f"<title>{_text(title)}, {now:%Y-%m-%d}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body></html>\n"
    )


def _outcome(identity: Reconciliation) -> str:
    verdict = (
        f'<p class="verdict">All {identity.drained:,} messages are accounted for</p>'
        if identity.holds
        else '<p class="verdict bad">It does not add up</p>'
    )
    tiles = [
        _tile(identity.drained, "drained"),
        _tile(identity.requeued, "requeued", "good"),
        _tile(identity.restored, "restored to their queues"),
        _tile(identity.kept, "kept in the archive"),
        *(
            (_tile(identity.in_doubt, "of these without a sure way back", "warn"),)
            if identity.in_doubt
            else ()
        ),
        _tile(identity.discarded, "discarded"),
        _tile(identity.refused, "could not be sent", "bad" if identity.refused else ""),
        _tile(
            identity.possible_duplicates,
            "possible duplicates",
            "warn" if identity.possible_duplicates else "",
        ),
    ]
    refused = "".join(
        f"<li><code>{_text(one['id'])}</code> {_text(one['error'])}</li>"
        for one in identity.refusals
    )
    return (
        f'{verdict}<p class="note">{_text(str(identity))}</p><div class="tiles">{"".join(tiles)}'
        "</div>"
    ) + (f"<p>Could not be sent:</p><ul>{refused}</ul>" if refused else "")


def _tiles(plan: RunPlan, count: str, chosen: str) -> str:
    tiles = (
        _tile(plan.count, count),
        _tile(plan.chosen, chosen),
        _tile(len(plan.groups), "causes"),
        _tile(size_in_words(plan.size), "total body size"),
        _tile(size_in_words(plan.median), "median body"),
        _tile(size_in_words(plan.largest), "largest body"),
    )
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _tile(value: int | str, name: str, kind: str = "") -> str:
    shown = f"{value:,}" if isinstance(value, int) else value
    return f'<div class="tile {kind}"><b>{_text(shown)}</b><span>{name}</span></div>'


def _choice(plan: RunPlan) -> str:
    where = f"where <code>{_text(plan.where)}</code>" if plan.where else "all messages"
    transform = f", changed by <code>{_text(plan.transform)}</code>" if plan.transform else ""
    return f"<p>Chosen: {where}{transform}.</p>"


def _times(plan: RunPlan) -> str:
    if not plan.times:
        return '<p class="note">No message has a failure time.</p>'
    first, last = plan.times[0][0].timestamp(), plan.times[-1][0].timestamp()
    slots = int((last - first) / plan.stretch_seconds) + 1
    most = max(count for _, count in plan.times)
    width = _WIDTH / slots
    bars = []
    for moment, count in plan.times:
        x = (moment.timestamp() - first) / plan.stretch_seconds * width
        height = max(1.0, count / most * _HEIGHT)
        bars.append(
            f'<rect x="{x:.1f}" y="{_HEIGHT - height:.1f}" width="{max(1.0, width - 1):.1f}" '
            f'height="{height:.1f}"><title>{moment:%Y-%m-%d %H:%M:%S}: {count:,}</title></rect>'
        )
    beyond = [
        f"not shown: {count:,} {word}"
        for count, word in ((plan.earlier, "much earlier"), (plan.later, "much later"))
        if count
    ]
    each = f"each bar is {format_duration(timedelta(seconds=plan.stretch_seconds))}"
    return (
        f'<h2>When they failed</h2><p class="note">{"; ".join([each, *beyond])}</p>'
        f'<div class="chart"><div class="scale"><span>{most:,}</span><span>0</span></div>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="messages by time">{"".join(bars)}</svg>'
        f'<div class="ends"><span>{plan.times[0][0]:%Y-%m-%d %H:%M:%S} UTC</span>'
        f"<span>{plan.times[-1][0]:%Y-%m-%d %H:%M:%S} UTC</span></div></div>"
    )


def _groups(groups: Iterable[RunGroup], total: int) -> str:
    rows = []
    for group in groups:
        share = 100 * group.count / total if total else 0
        rows.append(
            f'<tr><td class="n" data-is="messages">{group.count:,}<div class="track">'
            f'<i style="width:{share:.1f}%"></i></div></td>'
            f'<td class="n" data-is="chosen">{group.chosen:,}</td>'
            f'<td class="queue" data-is="queue">{_text(group.queue)}</td>'
            f'<td class="error" data-is="error"><b>{_text(group.error_type or "not known")}</b>'
            f"<span>{_text(group.error_message or '–')}</span></td>"
            f'<td class="n" data-is="size">{_text(size_in_words(group.size))}</td>'
            f'<td class="when" data-is="from, to">{_time(group.first)}<br>{_time(group.last)}</td>'
            f'<td data-is="group"><code>{_text(group.id)}</code></td></tr>'
        )
    heads = ("messages", "chosen", "queue", "error, with an example", "size", "from, to")
    head = "".join(
        f"<th{' class=n' if name in ('messages', 'chosen', 'size') else ''}>{name}</th>"
        for name in (*heads, "group")
    )
    return (
        '<p class="note">To choose one cause only: <code>--where "group_id = \'…\'"</code>.</p>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _time(moment: datetime | None) -> str:
    return "–" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}"


def _text(text: str) -> str:
    return escape(printable(redact(text)))
