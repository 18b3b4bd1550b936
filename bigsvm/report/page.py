"""A report as one HTML page that contains its styles, drawings and numbers; no script, nothing from elsewhere.

A number from a document carries its source and its value: `<span data-source="run:result.relative_gap"
data-value="7.73e-05">`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

import bigsvm
from bigsvm.report.draw.plots import inline_svg
from bigsvm.report.facts import Bar, Chart, Report, Section, Table, Told, in_line, printable

_STYLE = Path(__file__).with_name("page.css")
_KINDS = {"run": "Record of a fit", "model": "Saved model", "registry": "Registry of models"}
_PALETTE = 8
_NARROW = 3  # limit of the columns of a narrow table


def page(report: Report) -> str:
    """The page; matplotlib must be installed (`check_matplotlib`)."""
    return printable("\n".join(_lines(report)) + "\n")


def _lines(report: Report) -> Iterator[str]:
    yield "<!DOCTYPE html>"
    yield '<html lang="en">'
    yield '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    # Whatever names may contain, the page requests nothing from anywhere.
    yield "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    yield f"<title>{escape(report.title)} — bigsvm</title>"
    yield f"<style>\n{_STYLE.read_text(encoding='utf-8')}</style></head>"
    yield "<body>"
    yield f'<p class="kind">{_KINDS[report.kind]} · {escape(report.name)}</p>'
    yield f"<h1>{escape(report.title)}</h1>"
    yield f'<p class="lead {report.tone}">{_values(report.lead)}</p>'
    if report.warnings:
        items = "".join(f"<li>{escape(text)}</li>" for text in report.warnings)
        yield f'<ul class="warnings">{items}</ul>'
    drawn = 0
    for section in report.sections:
        yield from _section(section, drawn)
        drawn += len(section.charts)
    yield f"<footer>Made by bigsvm {escape(bigsvm.__version__)}.</footer>"
    yield "</body></html>"


def _section(section: Section, drawn: int) -> Iterator[str]:
    yield f"<section><h2>{escape(section.title)}</h2>"
    if section.facts:
        items = (f"<div><dt>{escape(fact.name)}</dt><dd>{_values(fact.values)}</dd></div>" for fact in section.facts)
        yield f"<dl>{''.join(items)}</dl>"
    for bar in section.bars:
        yield from _bar(bar)
    if section.charts:
        yield '<div class="charts">'
        for k, chart in enumerate(section.charts):
            yield _figure(chart, drawn + k)
        yield "</div>"
    if section.tables:
        single = " single" if len(section.tables) == 1 else ""
        yield f'<div class="tables{single}">'
        for table in section.tables:
            yield _table(table)
        yield "</div>"
    if section.note:
        yield f'<p class="note">{escape(section.note)}</p>'
    yield "</section>"


def _told(told: Told) -> str:
    if told.value is None:
        return escape(told.text)
    where = f'data-source="{escape(told.source)}" data-value="{told.value!r}"'
    return f'<span class="number" {where}>{escape(told.text)}</span>'


def _values(values: Sequence[Told]) -> str:
    return in_line(values, _told)


def _bar(bar: Bar) -> Iterator[str]:
    yield f"<h3>{escape(bar.title)}</h3>"
    whole = bar.whole or 1.0
    pieces = "".join(
        f'<span class="k{k % _PALETTE}" style="width: {100 * part.size / whole:.2f}%"></span>'
        for k, part in enumerate(bar.parts)
        if part.size > 0
    )
    yield f'<div class="whole" aria-hidden="true">{pieces}</div>'
    items = "".join(
        f'<li><i class="k{k % _PALETTE}"></i>{escape(part.name)} {_told(part.told)}</li>'
        for k, part in enumerate(bar.parts)
    )
    yield f'<ul class="legend">{items}</ul>'


def _figure(chart: Chart, number: int) -> str:
    said = f"<figcaption>{escape(chart.told)}</figcaption>" if chart.told else ""
    return f"<figure><h3>{escape(chart.title)}</h3>\n{inline_svg(chart, number)}\n{said}</figure>"


def _table(table: Table) -> str:
    matrix = bool(table.shades) and len(table.head) > 2
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.head)
    rows = []
    for i, row in enumerate(table.rows):
        cells = (_cell(told, table.shades[i][j] if table.shades else 0.0, matrix) for j, told in enumerate(row))
        rows.append(f"<tr>{''.join(cells)}</tr>")
    caption = f"<caption>{escape(table.caption)}</caption>" if table.caption and not table.folded else ""
    kind = ' class="matrix"' if matrix else ' class="narrow"' if len(table.head) <= _NARROW else ' class="wide"'
    text = f'<div class="scroll"><table{kind}>{caption}<thead><tr>{head}</tr></thead>'
    text += f"<tbody>{''.join(rows)}</tbody></table></div>"
    if table.folded:
        return f"<details><summary>{escape(table.caption)}</summary>{text}</details>"
    return text


def _cell(told: Told, shade: float, matrix: bool) -> str:
    number = ' class="number"' if told.value is not None else ""
    if shade <= 0:
        return f"<td{number}>{_told(told)}</td>"
    if matrix:
        return f'<td{number} style="background: rgba(var(--shade), {0.06 + 0.44 * shade:.2f})">{_told(told)}</td>'
    return f'<td class="number bar" style="background-size: {100 * shade:.0f}% 100%">{_told(told)}</td>'
