"""bigsvm plot: runs side by side."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import click

from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.page import check_page, write_page
from bigsvm.cli.session import Session
from bigsvm.errors import UsageError

_FORMS = (".svg", ".png")
_WIDEST = 100


@bigsvm_command(
    help="Compare fits: proved gaps of each RUN against passes and against seconds.\n\n"
    "With -o a picture (matplotlib, the extra `report`), else drawn in the terminal's characters."
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE.svg|FILE.png", help="The picture.")
@click.option("--overwrite", is_flag=True, help="Replace an existing picture.")
def command(session: Session, runs: tuple[Path, ...], output: Path | None, overwrite: bool) -> int:
    from bigsvm.report.compare import comparison, names_of, points_of
    from bigsvm.report.runs import read_run

    if output is not None:
        if output.suffix.lower() not in _FORMS:
            raise UsageError(f"a picture is .svg or .png, not {output.suffix or 'without an ending'}", str(output))
        check_page(output, overwrite)
    found = [read_run(path) for path in runs]
    charts = comparison(found)
    if not any(curve.y for chart in charts for curve in chart.curves):
        session.warn("no run has a gap yet")
    told = [
        {"name": name, "run": str(run.folder), "status": run.status, "proofs": points_of(run)}
        for name, run in zip(names_of(found), found, strict=True)
    ]
    if output is None:
        from bigsvm.report.draw.chart import braille

        colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        width = min(_WIDEST, shutil.get_terminal_size().columns)
        return session.finish({"runs": told}, "\n\n".join(braille(chart, width, colour=colour) for chart in charts))

    from bigsvm.report.draw.plots import picture

    write_page(output, picture(charts, output.suffix.lower()[1:]), overwrite)
    return session.finish({"runs": told, "picture": str(output)}, f"{output}: {len(found)} runs", made=True)
