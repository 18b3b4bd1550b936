"""bigsvm predict: writes labels and scores of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bigsvm.cli import text
from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.options import add, config_of, judged_options, run_options, take_rows
from bigsvm.cli.session import Session
from bigsvm.cli.types import LocalPath, Source
from bigsvm.errors import UsageError

_STANDARD_OUTPUT = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


@bigsvm_command(
    help="Write one line for each row of SOURCE: its label and its score, or its value.\n\n"
    "SOURCE is a store, a table, or svmlight text (- for standard input).  Its rows need no labels.  --label and "
    "--weight name columns to leave out of the features, if they have other names than label and weight."
)
@click.argument("model", type=LocalPath())
@click.argument("source", type=Source())
@click.option("-o", "--out", default="-", show_default=True, metavar="OUT|-", help="File to write.")
@click.option("--scores", is_flag=True, help="Write scores too (jsonl always has them).")
@click.option("--proba", is_flag=True, help="Write probabilities of the classes, in their order, instead of scores.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "csv", "parquet", "zarr", "anndata"]),
    help="anndata: a copy of an AnnData SOURCE with obs/prediction.  "
    "[default: by the suffix of OUT; jsonl for other suffixes]",
)
@click.option("--zero-based", is_flag=True, help="Feature indices in text start at 0.")
@click.option("--overwrite", is_flag=True, help="Replace an existing OUT.")
@add(judged_options + run_options)
@click.pass_context
def command(
    ctx: click.Context,
    session: Session,
    model: Path,
    source: str,
    out: str,
    scores: bool,
    form: str | None,
    overwrite: bool,
    label: str | None,
    weight: str | None,
    empty_chunks: Any,
    **options: Any,
) -> int:
    if out in _STANDARD_OUTPUT:
        out = "-"
    if session.as_json and out == "-":
        raise UsageError("--json and the predictions cannot both go to standard output", hint="name a file with -o")
    if scores and options["proba"]:
        raise UsageError("--scores and --proba exclude each other", hint="run the command twice to get both")
    zero_based, proba = options.pop("zero_based"), options.pop("proba")
    chosen = take_rows(options)
    config = config_of(ctx, options)

    from bigsvm.files.outputs import check_apart, check_plain_output
    from bigsvm.files.standard_output import standard_output
    from bigsvm.model.linear_model import load_model
    from bigsvm.run.apply.predict import predict
    from bigsvm.run.apply.prediction_files import format_of
    from bigsvm.store.formats.opener import check_text, is_text, open_store
    from bigsvm.store.remote.names import here, is_remote

    target = standard_output() if out == "-" else Path(out)
    if out != "-":
        check_apart({"the output": Path(out)}, {"the model": model, "the rows to predict": source})
    form = format_of(out, form)
    if form == "anndata" and is_remote(source):
        raise UsageError("only a store on a local disk can be copied with predictions", source, "use --format parquet")
    is_file = form not in ("zarr", "anndata") or Path(out).suffix.lower() == ".h5ad"
    if out != "-" and is_file:
        check_plain_output(Path(out), overwrite)
    loaded = load_model(model)
    rows: Any = source
    if is_text(source):
        check_text(label, weight, chosen)
        session.note_of_typing(source)
    else:
        rows = open_store(
            source, label=label, weight=weight, empty_chunks=empty_chunks, labelled=False,
            like=loaded.about.get("rows"), **chosen,
        )  # fmt: skip
        session.warn_of(rows)
    if out == "-":
        session.progress = False  # a progress bar would mix with the lines on the terminal
    identity = {
        "model": loaded.fingerprint,
        "rows": {"text": source} if isinstance(rows, str) else rows.identity.document(),
    }
    with here(rows) as text_or_rows, session.watching() as emit:
        result = predict(
            loaded,
            text_or_rows,
            target,
            form,
            config,
            with_scores=scores,
            with_proba=proba,
            overwrite=overwrite,
            zero_based=zero_based,
            identity=identity,
            emit=emit,
        )
    result = {"model": str(model), "source": source, "output": out, "identity": identity, **result}
    if "values" in result:
        seen = ", ".join(f"{name} {text.number(value)}" for name, value in result["values"].items())
    else:
        seen = ", ".join(
            f"{text.label(label)}: {text.count(n)}" for label, n in list(result["label_counts"].items())[:8]
        )
    lines = [
        ("rows", text.count(result["n_samples"])),
        ("chosen", text.chosen(result)),
        ("values" if "values" in result else "labels", seen),
        ("time", text.seconds(result["seconds"])),
        ("memory", text.memory(result["memory"])),
    ]
    return session.finish(result, "" if out == "-" else f"{text.label(out)}\n" + text.rows(lines), made=True)
