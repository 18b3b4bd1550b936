"""bigsvm watch: follows a fit of another process."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bigsvm.cli import text
from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.session import Session
from bigsvm.cli.types import LocalPath, OutputPath
from bigsvm.errors import UsageError
from bigsvm.units import parse_seconds

if TYPE_CHECKING:
    from bigsvm.report.runs import Run
    from bigsvm.report.watch.snapshot import Snapshot

_INTERRUPTED = 75
_SHORTEST_S = 0.05
Shows = Callable[["Run", "Snapshot"], None]


@bigsvm_command(
    help="Follow the fit whose record is RUN until it ends, also from another process or machine.\n\n"
    "On a terminal it shows a live table, elsewhere a line for each certificate.  It ends with the exit code of the "
    "fit, or with 75 if the fit's process was stopped or died."
)
@click.argument("run", type=LocalPath())
@click.option("--once", is_flag=True, help="Show the current state and end.")
@click.option("--every", metavar="DUR", default="1s", show_default=True, help="Time between updates.")
@click.option(
    "--openmetrics",
    type=OutputPath(),
    metavar="FILE.prom",
    help="Also write metrics to this file at each update, for node_exporter's textfile collector.",
)
def command(session: Session, run: Path, once: bool, every: str, openmetrics: Path | None) -> int:
    from bigsvm.report.runs import read_run
    from bigsvm.report.watch.snapshot import snapshot

    pause = parse_seconds(every)
    if pause < _SHORTEST_S:
        raise UsageError(f"--every {every} is too often", hint=f"use at least {_SHORTEST_S}s")
    if openmetrics is not None:
        _check_metrics(session, openmetrics)
    with _view(session, run, once) as show:
        while True:
            found = read_run(run)
            now = snapshot(found)
            if openmetrics is not None:
                _write_metrics(openmetrics, now)
            show(found, now)
            if once or not now.live:
                break
            time.sleep(pause)
    if now.status == "died":
        session.warn(f"the process of this run is gone: bigsvm resume {run} continues the run")
    document = {**now.document(), "result": found.result or None}
    said = f"{text.label(run)}: a run\n" + text.rows(now.lines())
    return session.finish(document, said, now.status, _exit_code(found, now))


def _exit_code(run: Run, now: Snapshot) -> int:
    """The exit code of the fit; 0 while it is running."""
    from bigsvm.report.runs import OVER
    from bigsvm.run.fit.outcome import exit_code

    if now.live:
        return 0
    if now.status in OVER:
        job = run.record.get("job") or {}
        return exit_code(now.status, job.get("allow_unconverged") is True)
    if now.resumable:
        return _INTERRUPTED
    code = run.record.get("exit_code")
    return code if isinstance(code, int) and 0 < code < 256 else 1


def _check_metrics(session: Session, path: Path) -> None:
    """Raise OutputError before watching, if the file cannot be written."""
    from bigsvm.files.outputs import check_plain_output

    check_plain_output(path, overwrite=True)
    if path.suffix != ".prom":
        session.warn(f"node_exporter reads files that end in .prom, and {path.name} does not")


def _write_metrics(path: Path, now: Snapshot) -> None:
    """Write the file in one step, so that a reader never sees a part of it."""
    from bigsvm.files.atomic import write_bytes
    from bigsvm.report.watch.metrics import metrics

    write_bytes(path, metrics(now).encode())


@contextlib.contextmanager
def _view(session: Session, run: Path, once: bool) -> Iterator[Shows]:
    """A context manager for the display while the fit is running; the final state goes to standard output."""
    if session.quiet or once:
        yield lambda found, now: None
    elif session.log_format == "json":
        from bigsvm.observe.jsonl import without_surrogates

        yield _of_new_events(lambda event: click.echo(json.dumps(without_surrogates(event)), err=True))
    elif session.progress and sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        from bigsvm.observe.live_table import LiveTable

        with LiveTable(sys.stderr, str(run)) as table:
            yield lambda found, now: table.show(now.lines())
    else:
        from bigsvm.observe.jsonl import event_of
        from bigsvm.observe.lines import PlainLines

        lines = PlainLines(sys.stderr, verbose=session.verbose > 0)

        def say(document: dict[str, Any]) -> None:
            event = event_of(document)
            if event is not None:
                lines(event)

        yield _of_new_events(say)


def _of_new_events(tell: Callable[[dict[str, Any]], None]) -> Shows:
    """Shows each event once, as it comes; if the record is started again, from its first event."""
    seen = 0

    def show(found: Run, now: Snapshot) -> None:
        nonlocal seen
        seen = 0 if len(found.events) < seen else seen
        for event in found.events[seen:]:
            tell({name: value for name, value in event.items() if name != "line"})
        seen = len(found.events)

    return show
