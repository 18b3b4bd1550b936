"""bigsvm report: a page or a text about a run, a model or a registry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.options import add, config_of, judged_options, run_options, take_rows
from bigsvm.cli.page import check_page, write_page
from bigsvm.cli.session import Session
from bigsvm.cli.text import label
from bigsvm.cli.types import LocalPath
from bigsvm.errors import OutputError, UsageError
from bigsvm.units import show_bytes


@bigsvm_command(
    help="Make one self-contained HTML page about PATH, which is a run, a model or a registry.\n\n"
    "The page has the data and the options, the certificate in one sentence, the gap over time, the use of time and "
    "memory, and the strongest features; with --data also metrics on those rows.  For a registry it has all versions, "
    "their metrics, who promoted which and why.  Pages need matplotlib (the extra `report`); --text needs nothing."
)
@click.argument("path", type=LocalPath())
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Page to write; - is standard output.  [default: PATH/report.html for a run, else NAME.html]",
)
@click.option("--text", "as_text", is_flag=True, help="Print facts, bars and sparklines in the terminal.")
@click.option("--data", metavar="STORE", help="Rows with labels to test the model on: a store or svmlight text.")
@click.option("--mlflow", metavar="EXPERIMENT", help="Log a finished run to MLflow instead of making a page.")
@click.option("--zero-based", is_flag=True, help="Feature indices in text start at 0.")
@click.option("--overwrite", is_flag=True, help="Replace an existing page.")
@add(judged_options + run_options)
@click.pass_context
def command(
    ctx: click.Context,
    session: Session,
    path: Path,
    output: str | None,
    as_text: bool,
    data: str | None,
    zero_based: bool,
    overwrite: bool,
    **options: Any,
) -> int:
    from bigsvm.files.standard_output import standard_output
    from bigsvm.report.make import figures, make_report, place_of

    if (experiment := options.pop("mlflow")) is not None:
        return _logged(session, path, experiment, output is not None or as_text or data is not None)
    if as_text and output not in (None, "-"):
        raise UsageError("--text goes to standard output", str(output), "leave out -o or --text")
    if output == "-" and session.as_json:
        raise UsageError("the page and the JSON document cannot both go to standard output", hint="name a file")
    if output == "-":
        standard_output()
    out = None if as_text or output == "-" else Path(output) if output else place_of(path)
    if not as_text:
        check_page(out, overwrite)
    chosen = take_rows(options)
    report, model = make_report(path, with_model=data is not None)
    if data is not None:
        assert model is not None
        opening = {name: options.pop(name) for name in ("label", "weight", "empty_chunks")}
        config = config_of(ctx, options)
        sections = _tried(session, model, data, config, zero_based, opening, chosen)
        report.sections[2:2] = sections  # after the sections about the model and its certificate
    result: dict[str, Any] = {"path": str(path), "kind": report.kind, "figures": figures(report)}
    if as_text:
        from bigsvm.report.text import text

        return session.finish(result, text(report))

    from bigsvm.report.page import page

    html = page(report)
    if out is None:
        return session.finish(result, html.rstrip("\n"))
    content = html.encode()
    write_page(out, content, overwrite)
    nbytes = len(content)
    result = {**result, "report": str(out), "bytes": nbytes}
    return session.finish(result, f"{label(out)}: {show_bytes(nbytes)}", made=True)


def _logged(session: Session, run: Path, experiment: str, otherwise: bool) -> int:
    """Log a run to MLflow; here, unlike after a fit, a failure is an error."""
    from bigsvm.observe.run_files import is_run, no_run_here
    from bigsvm.report.track import check_mlflow, track

    if otherwise:
        raise UsageError("--mlflow logs the page instead of writing it", hint="leave out -o, --text and --data")
    check_mlflow()
    if not is_run(run):
        raise no_run_here(run)
    failed = track(run, experiment)
    if failed:
        raise OutputError(f"MLflow did not get the run: {failed}", str(run))
    return session.finish({"path": str(run), "experiment": experiment}, f"logged to {experiment}", made=True)


def _tried(
    session: Session,
    model: Any,
    data: str,
    config: Any,
    zero_based: bool,
    opening: dict[str, Any],
    chosen: dict[str, Any],
) -> list[Any]:
    """Sections about a model on other rows."""
    from bigsvm.report.about.data import data_sections
    from bigsvm.run.apply.evaluate import counted
    from bigsvm.run.apply.label_tally import LabelTally
    from bigsvm.run.start.targets import open_for
    from bigsvm.store.formats.opener import check_text, is_text

    if model.multi_label:
        raise UsageError("pages cannot show rows with several labels", data, "use bigsvm evaluate")
    rows: Any = data
    if is_text(data):
        check_text(opening["label"], opening["weight"], chosen)
    else:
        rows = open_for(data, model.regression, like=model.about.get("rows"), **opening, **chosen)
        session.warn_of(rows)
    with session.watching() as emit:
        result, tally = counted(model, rows, config, emit, zero_based)
    assert not isinstance(tally, LabelTally)
    return data_sections(data, result, tally)
