"""The status page of a daemon: one self-contained HTML page that asks for itself again.

It shows what it is given and knows nothing of brokers. Every value is escaped; there is no script
and nothing is loaded from anywhere.
"""

from collections.abc import Sequence
from html import escape

REFRESH_SECONDS = 5
ROWS_MAX = 500  # of one table; a page with more helps nobody

Cell = str | int | float
# A table is its title, its columns and its rows; a page is its title, its facts and its tables.
Table = tuple[str, Sequence[str], Sequence[Sequence[Cell]]]
Status = tuple[str, Sequence[tuple[str, Cell]], Sequence[Table]]

STYLE = """
:root { color-scheme: light dark; --ink: #22201c; --soft: #6d675c; --paper: #fbfaf7;
  --card: #ffffff; --line: #e6e1d6; --amber: #d98e04; --good: #2f7d4f; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #ece7dc; --soft: #a39c8e; --paper: #191713;
  --card: #221f1a; --line: #37322a; --amber: #f2b134; --good: #6fbf8f; --bad: #f08a80; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 64rem; margin: 0 auto; padding: 2rem 1.25rem 3rem; }
header { display: flex; flex-wrap: wrap; align-items: center; gap: .5rem 1rem; }
h1 { margin: 0; font-size: 1.5rem; font-weight: 650; overflow-wrap: anywhere; }
h1::before { content: ""; display: inline-block; width: .8em; height: .92em; margin-right: .45em;
  background: var(--amber); vertical-align: -.1em;
  clip-path: polygon(50% 0, 100% 25%, 100% 75%, 50% 100%, 0 75%, 0 25%); }
.state { padding: .15rem .7rem; border-radius: 1rem; border: 1px solid currentColor;
  font-size: .85rem; color: var(--good); }
.state.bad { color: var(--bad); }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr)); gap: .75rem;
  margin: 1.5rem 0 0; }
dl div, .table { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; }
dl div { padding: .6rem .9rem; }
dt { color: var(--soft); font-size: .8rem; }
dd { margin: 0; font-weight: 550; overflow-wrap: anywhere; }
h2 { margin: 2rem 0 .6rem; font-size: 1.05rem; font-weight: 600; }
.table { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; }
th, td { padding: .45rem .9rem; text-align: left; border-top: 1px solid var(--line);
  white-space: nowrap; }
thead th { border-top: 0; color: var(--soft); font-size: .8rem; font-weight: 500; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
p { color: var(--soft); margin: .6rem 0; }
footer { margin-top: 2.5rem; color: var(--soft); font-size: .85rem; }
a { color: inherit; }
"""


def render(status: Status, fault: str | None) -> str:
    """The page as HTML. `fault` is what is wrong, in one sentence."""
    title, facts, tables = status
    state = f'<span class="state bad">{escape(fault)}</span>' if fault else _ALL_WELL
    cards = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(_text(value))}</dd></div>"
        for name, value in facts
    )
    body = "".join(_table(*table) for table in tables)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>"
        f"<header><h1>{escape(title)}</h1>{state}</header><dl>{cards}</dl>{body}"
        f'<footer>Read anew every {REFRESH_SECONDS} seconds. Also here: <a href="/metrics">metrics'
        '</a>, <a href="/healthz">healthz</a>, <a href="/readyz">readyz</a>.</footer>'
        "</main></body></html>"
    )


_ALL_WELL = '<span class="state">ready</span>'


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    heading = f"<h2>{escape(title)}</h2>"
    if not rows:
        return f"{heading}<p>None yet.</p>"
    numeric = [not isinstance(cell, str) for cell in rows[0]]
    head = "".join(
        f"<th{_NUMBER if number else ''}>{escape(column)}</th>"
        for column, number in zip(columns, numeric, strict=True)
    )
    lines = "".join(f"<tr>{_cells(row)}</tr>" for row in rows[:ROWS_MAX])
    more = f"<p>and {len(rows) - ROWS_MAX:,} more</p>" if len(rows) > ROWS_MAX else ""
    return (
        f'{heading}<div class="table"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>{more}"
    )


_NUMBER = ' class="number"'


def _cells(row: Sequence[Cell]) -> str:
    return "".join(
        f"<td>{escape(cell)}</td>" if isinstance(cell, str) else f"<td{_NUMBER}>{_text(cell)}</td>"
        for cell in row
    )


def _text(value: Cell) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
