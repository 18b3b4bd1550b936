"""bigsvm plot: compares runs in charts."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.page import check_page, write_page
from bigsvm.cli.session import Session
from bigsvm.cli.text import label
from bigsvm.cli.types import LocalPath, OutputPath
from bigsvm.errors import UsageError
from bigsvm.units import counted

if TYPE_CHECKING:
    from bigsvm.report.facts import Chart

_FORMS = (".svg", ".png")
_WIDEST = 100
CURVE, SEARCH = "curve.json", "search.json"
"""Repeated from `bigsvm/run/tune/folder.py`, so that help texts need not import it."""


@bigsvm_command(
    help="Compare fits: plot the proved gaps of each RUN against passes and against seconds.  For a search, plot the "
    "held-out metric against C, or with --sizes against the number of training rows.\n\n"
    "With -o the plot is a picture (matplotlib, the extra `report`); without it, text in the terminal."
)
@click.argument("runs", nargs=-1, required=True, type=LocalPath(), metavar="RUN...")
@click.option("-o", "--output", type=OutputPath(), metavar="FILE.svg|FILE.png", help="Picture to write.")
@click.option("--overwrite", is_flag=True, help="Replace an existing picture.")
def command(session: Session, runs: tuple[Path, ...], output: Path | None, overwrite: bool) -> int:
    from bigsvm.report.compare import comparison, names_of, points_of
    from bigsvm.report.runs import read_run

    if output is not None:
        if output.suffix.lower() not in _FORMS:
            raise UsageError("the name of a picture must end in .svg or .png", str(output))
        check_page(output, overwrite)
    if all((path / CURVE).is_file() for path in runs):
        return _learning(session, runs, output, overwrite)
    searches = [path for path in runs if (path / SEARCH).is_file()]
    if len(searches) == len(runs):
        return _searches(session, runs, output, overwrite)
    if searches:
        raise UsageError("searches cannot be compared with fits", str(searches[0]))
    found = [read_run(path) for path in runs]
    charts = comparison(found)
    if not any(curve.y for chart in charts for curve in chart.curves):
        session.warn("no run has a gap yet")
    told = [
        {"name": name, "run": str(run.folder), "status": run.status, "proofs": points_of(run)}
        for name, run in zip(names_of(found), found, strict=True)
    ]
    return _drawn(session, {"runs": told}, charts, output, overwrite)


def _learning(session: Session, runs: tuple[Path, ...], output: Path | None, overwrite: bool) -> int:
    """Charts of learning curves."""
    from bigsvm.report.learning import learning_chart
    from bigsvm.run.tune.sizes import read_curve

    found = [read_curve(path) for path in runs]
    told = [{"run": str(path), "learning_curve": curve} for path, curve in zip(runs, found, strict=True)]
    chart = learning_chart([path.name.removesuffix(".run") for path in runs], found)
    return _drawn(session, {"runs": told}, [chart], output, overwrite)


def _searches(session: Session, runs: tuple[Path, ...], output: Path | None, overwrite: bool) -> int:
    """Charts of searches."""
    from bigsvm.report.candidates import search_chart
    from bigsvm.run.tune.result import read_found

    found = [read_found(path) for path in runs]
    told = [{"run": str(path), "search": document} for path, document in zip(runs, found, strict=True)]
    chart = search_chart([path.name.removesuffix(".run") for path in runs], found)
    return _drawn(session, {"runs": told}, [chart], output, overwrite)


def _drawn(session: Session, told: dict[str, Any], charts: list[Chart], output: Path | None, overwrite: bool) -> int:
    """Show charts as a picture, or in characters."""
    if output is None:
        from bigsvm.report.draw.chart import braille

        colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        width = min(_WIDEST, shutil.get_terminal_size().columns)
        return session.finish(told, "\n\n".join(braille(chart, width, colour=colour) for chart in charts))

    from bigsvm.report.draw.plots import picture

    write_page(output, picture(charts, output.suffix.lower()[1:]), overwrite)
    line = f"{label(output)}: {counted(len(told['runs']), 'run')}"
    return session.finish({**told, "picture": str(output)}, line, made=True)
