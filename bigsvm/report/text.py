"""A report for the terminal: the lead, the facts, bars and sparklines.  Needs no other library."""

from __future__ import annotations

from collections.abc import Iterator

from bigsvm.errors import CONTROLS
from bigsvm.report.draw.chart import bar, sparkline
from bigsvm.report.facts import Bar, Chart, Fact, Report, Section, Table, in_line

_LINES = 25
"""Limit of the lines of a table."""


def text(report: Report) -> str:
    """The report as lines; folded tables are left out."""
    lines = [report.title, "=" * len(report.title), "", in_line(report.lead)]
    lines += [f"warning: {said}" for said in report.warnings]
    for section in report.sections:
        body = list(_section(section))
        if body:
            lines += ["", section.title, "-" * len(section.title), *body]
    return "\n".join(line.translate(CONTROLS) for line in lines)


def _section(section: Section) -> Iterator[str]:
    yield from _facts(list(section.facts))
    for item in section.bars:
        yield from _bar(item)
    for chart in section.charts:
        yield from _chart(chart)
    for table in section.tables:
        if not table.folded:
            yield from _table(table)
    if section.note:
        yield f"  {section.note}"


def _facts(facts: list[Fact]) -> Iterator[str]:
    width = max((len(fact.name) for fact in facts), default=0)
    for fact in facts:
        yield f"  {fact.name:<{width}}  {in_line(fact.values)}"


def _bar(item: Bar) -> Iterator[str]:
    yield f"  {item.title}"
    width = max((len(part.name) for part in item.parts), default=0)
    for part in item.parts:
        yield f"    {part.name:<{width}}  {bar(part.size / (item.whole or 1.0))}  {part.told.text}"


def _chart(chart: Chart) -> Iterator[str]:
    """A sparkline for each curve, with its first and last value."""
    yield f"  {chart.title}"
    width = max((len(curve.name) for curve in chart.curves), default=0)
    for curve in chart.curves:
        line = sparkline(curve.y, log=chart.log_y)
        if curve.name and line:
            ends = f"  {curve.y[0]:.3g} … {curve.y[-1]:.3g}" if chart.kind == "lines" else ""
            yield f"    {curve.name:<{width}}  {line}{ends}"


def _table(table: Table) -> Iterator[str]:
    if table.caption:
        yield f"  {table.caption}"
    rows = [[cell.text for cell in row] for row in table.rows[:_LINES]]
    widths = [max(len(line[j]) for line in [list(table.head), *rows]) for j in range(len(table.head))]
    for line in [list(table.head), *rows]:
        yield ("    " + "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))).rstrip()
    if len(table.rows) > _LINES:
        yield f"    … {len(table.rows) - _LINES} more"
