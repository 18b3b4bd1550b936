"""bigsvm dump: store to text."""

from __future__ import annotations

from typing import Any

import click

from bigsvm.cli import text
from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.options import add, store_options, take_rows
from bigsvm.cli.session import Session
from bigsvm.cli.types import Source
from bigsvm.errors import UsageError


@bigsvm_command(help="Write STORE as svmlight text to OUT (- for standard output); reading it back gives the same.")
@click.argument("store", type=Source())
@click.argument("out")
@click.option("--overwrite", is_flag=True, help="Replace an existing OUT.")
@add(store_options)
def command(
    session: Session,
    store: str,
    out: str,
    overwrite: bool,
    label: str | None,
    weight: str | None,
    empty_chunks: Any,
    **options: Any,
) -> int:
    if session.as_json and out == "-":
        raise UsageError("--json and the text cannot both go to standard output", hint="name a file")

    from bigsvm.files.paths import check_here
    from bigsvm.store.formats.opener import open_store
    from bigsvm.store.text.dump import dump

    check_here(out)
    data = open_store(store, label=label, weight=weight, empty_chunks=empty_chunks, **take_rows(options))
    session.warn_of(data)
    if out == "-":
        session.progress = False  # a bar and the lines would share the terminal
    with session.watching() as emit:
        result = dump(data, out, emit=emit, overwrite=overwrite)
    for warning in result.pop("warnings", []):
        session.warn(warning)
    result = {"store": store, "output": out, **result}
    line = f"{out}: {text.count(data.n_samples)} rows"
    return session.finish(result, "" if out == "-" else line, made=True)
