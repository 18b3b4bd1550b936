"""bigsvm export: writes a model in the format of another program."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from bigsvm.cli import text
from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.session import Session
from bigsvm.cli.types import AnyPath, LocalPath
from bigsvm.errors import UsageError
from bigsvm.units import show_bytes


@bigsvm_command(
    help="Write MODEL as ONNX, as LIBLINEAR's or LIBSVM's model text, or as one .npz of plain arrays.\n\n"
    "A model that a format cannot hold is refused; the message names a format that can."
)
@click.argument("model", type=LocalPath())
@click.argument("file", required=False, type=AnyPath())
@click.option("-o", "--out", type=AnyPath(), metavar="FILE", help="File to write; - is standard output.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["onnx", "liblinear", "libsvm", "npz"]),
    help="Format to write.  [default: by the suffix of FILE, .onnx or .npz]",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing FILE.")
def command(session: Session, model: Path, file: Path | None, out: Path | None, form: Any, overwrite: bool) -> int:
    if (file is None) == (out is None):
        raise click.UsageError("name the file to write once: bigsvm export MODEL -o FILE")

    from bigsvm.files.standard_output import standard_output, to_standard_output
    from bigsvm.model.exchange.exchange import export_model

    target = out or file
    assert target is not None
    to_stdout = str(target) == "-"
    if to_stdout and session.as_json:
        raise UsageError("--json and the model cannot both go to standard output", hint="name a file with -o")
    where = standard_output() if to_stdout else target
    with to_standard_output() if to_stdout else nullcontext():
        result = {"model": str(model), **export_model(model, where, form, overwrite=overwrite)}
    for warning in result.pop("warnings"):
        session.warn(warning)
    if to_stdout:
        return session.finish(result, "", made=True)
    lines = [("format", result["format"]), ("size", None if result["bytes"] is None else show_bytes(result["bytes"]))]
    return session.finish(result, f"{text.label(target)}\n" + text.rows(lines), made=True)
