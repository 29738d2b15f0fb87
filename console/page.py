"""The status page of a daemon: one HTML page that reloads itself.

It renders facts and tables and knows nothing of brokers. Numeric facts come first, in large type,
then textual ones. Every value is escaped; the page has no script and loads only its style.
"""

from collections.abc import Sequence
from html import escape

REFRESH_SECONDS = 5
ROWS_MAX = 500  # of one table
WITH_SYSTEM = "system"  # the query parameter that shows the system's topics

Cell = str | int | float
# A table is its title, its columns and its rows; a page is its title, its facts and its tables.
Table = tuple[str, Sequence[str], Sequence[Sequence[Cell]]]
Status = tuple[str, Sequence[tuple[str, Cell]], Sequence[Table]]

STYLE_FILE = "style.css"
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
.state.note { color: var(--amber); }
.version { color: var(--soft); font-size: .85rem; }
.figures, .facts, .table { background: var(--card); border: 1px solid var(--line);
  border-radius: .6rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr));
  margin: 1.5rem 0 0; padding: .3rem 0; }
.figures div { padding: .4rem .9rem; display: flex; flex-direction: column-reverse;
  justify-content: flex-end; }
.figures dd { font-size: 1.35rem; font-weight: 650; font-variant-numeric: tabular-nums; }
.facts { margin: .75rem 0 0; padding: .35rem .9rem; columns: 2 20rem; column-gap: 2rem; }
.facts div { display: flex; gap: .75rem; padding: .15rem 0; break-inside: avoid; }
.facts dt { flex: 0 0 9rem; line-height: 1.9; }
dt { color: var(--soft); font-size: .8rem; }
dd { margin: 0; overflow-wrap: anywhere; }
h2 { margin: 2rem 0 .6rem; font-size: 1.05rem; font-weight: 600; }
.table { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; }
th, td { padding: .45rem .9rem; text-align: left; border-top: 1px solid var(--line);
  white-space: nowrap; }
thead th { border-top: 0; color: var(--soft); font-size: .8rem; font-weight: 500; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
@media (max-width: 40rem) {
  main { padding: 1rem .75rem 2rem; display: flex; flex-direction: column; }
  .facts { order: 1; }
  .facts dt { flex-basis: 7rem; }
  footer { order: 2; }
  .figures { grid-template-columns: repeat(3, 1fr); }
  .figures div { padding: .3rem .6rem; }
  .figures dd { font-size: 1.1rem; }
  thead { display: none; }
  tr { display: block; padding: .35rem 0; border-top: 1px solid var(--line); }
  tr:first-child { border-top: 0; }
  td { display: flex; justify-content: space-between; gap: 1rem; padding: .1rem .9rem; border: 0;
    white-space: normal; overflow-wrap: anywhere; }
  td::before { content: attr(data-column); color: var(--soft); font-size: .8rem; flex: none; }
  td:first-child { font-weight: 600; }
}
p { color: var(--soft); margin: .6rem 0; }
footer { margin-top: 2.5rem; color: var(--soft); font-size: .85rem; }
a { color: inherit; }
"""


def render(
    status: Status,
    fault: str | None,
    note: str | None = None,
    *,
    version: str = "",
    with_system: bool = False,
    console: str = "",
) -> str:
    """The page as HTML.

    `fault` is the reason why the daemon is unhealthy, `note` a remark about a healthy one, each one
    sentence. `with_system`: the status includes the system's topics. `console` is the address of a
    console that shows the cluster.
    """
    title, facts, tables = status
    state = '<span class="state">ready</span>'
    if fault:
        state = f'<span class="state bad">{escape(fault)}</span>'
    elif note:
        state = f'<span class="state note">{escape(note)}</span>'
    figures = _list("figures", [fact for fact in facts if not isinstance(fact[1], str)])
    texts = _list("facts", [fact for fact in facts if isinstance(fact[1], str)])
    switch = '<a href="/">hide' if with_system else f'<a href="/?{WITH_SYSTEM}=1">show'
    body = "".join(_table(*table) for table in tables)
    link = f', <a href="{escape(console)}">console</a>' if console else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(title)}</title><link rel="stylesheet" href="/{STYLE_FILE}">'
        "</head><body><main>"
        f'<header><h1>{escape(title)}</h1>{state}<span class="version">{escape(version)}</span>'
        f"</header>{figures}{texts}{body}<p>{switch} system topics</a></p>"
        f'<footer>Updated every {REFRESH_SECONDS} seconds. Also here: <a href="/metrics">metrics'
        '</a>, <a href="/healthz">healthz</a>, <a href="/readyz">readyz</a>'
        f"{link}.</footer>"
        "</main></body></html>"
    )


def _list(kind: str, facts: Sequence[tuple[str, Cell]]) -> str:
    if not facts:
        return ""
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{_breakable(_text(value))}</dd></div>"
        for name, value in facts
    )
    return f'<dl class="{kind}">{items}</dl>'


def _breakable(text: str) -> str:
    """The escaped text, with line break opportunities after the slashes of a path."""
    return escape(text).replace("/", "/<wbr>")


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    heading = f"<h2>{escape(title)}</h2>"
    if not rows:
        return f"{heading}<p>None yet.</p>"
    numeric = [not isinstance(cell, str) for cell in rows[0]]
    head = "".join(
        f"<th{_NUMBER if number else ''}>{escape(column)}</th>"
        for column, number in zip(columns, numeric, strict=True)
    )
    names = [escape(column) for column in columns]
    lines = "".join(f"<tr>{_cells(names, row)}</tr>" for row in rows[:ROWS_MAX])
    more = f"<p>and {len(rows) - ROWS_MAX:,} more</p>" if len(rows) > ROWS_MAX else ""
    return (
        f'{heading}<div class="table"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>{more}"
    )


_NUMBER = ' class="number"'


def _cells(names: Sequence[str], row: Sequence[Cell]) -> str:
    return "".join(
        f'<td{"" if isinstance(cell, str) else _NUMBER} data-column="{name}">'
        f"<span>{escape(_text(cell))}</span></td>"
        for name, cell in zip(names, row, strict=True)
    )


def _text(value: Cell) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
