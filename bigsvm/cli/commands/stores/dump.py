"""bigsvm dump: writes the rows of a store as text or as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bigsvm.cli import text
from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.options import add, store_options, take_rows
from bigsvm.cli.session import Session
from bigsvm.cli.types import Source
from bigsvm.errors import UsageError


@bigsvm_command(
    help="Write the rows of STORE to OUT (- for standard output) as svmlight text, JSON lines, CSV, Parquet or Zarr, "
    "by the suffix of OUT.  Reading OUT gives the same rows (JSON lines are for other programs only)."
)
@click.argument("store", type=Source())
@click.argument("out")
@click.option(
    "--format",
    "form",
    type=click.Choice(["svmlight", "jsonl", "csv", "parquet", "zarr"]),
    help="Format to write.  [default: by the suffix of OUT; svmlight for other suffixes]",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing OUT.")
@add(store_options)
def command(
    session: Session,
    store: str,
    out: str,
    form: str | None,
    overwrite: bool,
    label: str | None,
    weight: str | None,
    empty_chunks: Any,
    **options: Any,
) -> int:
    if session.as_json and out == "-":
        raise UsageError("--json and the text cannot both go to standard output", hint="name a file")

    from bigsvm.files.outputs import check_apart, check_plain_output
    from bigsvm.files.paths import check_here
    from bigsvm.run.apply.row_files import row_format, write_rows
    from bigsvm.store.formats.opener import open_store

    check_here(out)
    form = row_format(out, form)
    if out != "-":
        check_apart({"the output": Path(out)}, {"the store": store})
        if form != "zarr":
            check_plain_output(Path(out), overwrite)
    data = open_store(store, label=label, weight=weight, empty_chunks=empty_chunks, **take_rows(options))
    session.warn_of(data)
    if out == "-":
        session.progress = False  # a progress bar would mix with the lines on the terminal
    with session.watching() as emit:
        result = write_rows(data, out, form, emit, overwrite)
    for warning in result.pop("warnings", []):
        session.warn(warning)
    result = {"store": store, "output": out, "format": form, **result}  # with `out`, for scripts that read that
    line = f"{text.label(out)}: {text.counted(data.n_samples, 'row')}"
    return session.finish(result, "" if out == "-" else line, made=True)
