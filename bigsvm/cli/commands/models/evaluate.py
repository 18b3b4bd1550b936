"""bigsvm evaluate: measures a model on a store."""

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

_LARGEST_TABLE = 12


@bigsvm_command(
    help="Measure MODEL on STORE: accuracy, balanced accuracy, F1, ROC AUC, average precision, confusion "
    "matrix; for a regression the mean squared and absolute errors and R2.\n\n"
    "One pass over the data.  With more than two classes, F1, AUC and average precision are means over the "
    "classes, each against the rest.\n\nSTORE may be a file of svmlight text."
)
@click.argument("model", type=LocalPath())
@click.argument("store", type=Source())
@click.option("--zero-based", is_flag=True, help="Feature indices in text start at 0.")
@click.option("--split", is_flag=True, help="Use only rows that --split kept out of the model's training.")
@add(judged_options + run_options)
@click.pass_context
def command(
    ctx: click.Context,
    session: Session,
    model: Path,
    store: str,
    zero_based: bool,
    split: bool,
    label: str | None,
    weight: str | None,
    empty_chunks: Any,
    **options: Any,
) -> int:
    chosen = take_rows(options)
    config = config_of(ctx, options)

    from bigsvm.model.linear_model import load_model
    from bigsvm.run.apply.evaluate import evaluate
    from bigsvm.run.apply.held_out import check_kept_back
    from bigsvm.run.start.targets import open_for
    from bigsvm.store.formats.opener import check_text, is_text
    from bigsvm.store.remote.names import here

    loaded = load_model(model)
    like = loaded.about.get("rows", {})
    for_training = {**chosen, "part": "train", "rows": like.get("chosen", {}).get("rows")}
    if split:
        if "split" in like and "split_by" not in like and "rows" in chosen:
            what = "the model is from an earlier version, which numbered only the rows that --rows selected"
            raise UsageError(what, str(model), "leave out --rows: the condition of the fit is used")
        chosen = {"rows": for_training["rows"], **chosen, "part": "test"}
    columns: dict[str, Any] = {"label": label, "weight": weight, "empty_chunks": empty_chunks, "like": like}
    rows: Any = store
    if is_text(store):
        check_text(label, weight, {"split": True} if split else chosen)
    else:
        rows = open_for(store, loaded.regression, **columns, **chosen)
        session.warn_of(rows)
    with here(rows) as text_or_rows, session.watching() as emit:
        if split:
            check_kept_back(loaded, open_for(store, loaded.regression, **columns, **for_training), config, emit)
        result = evaluate(loaded, text_or_rows, config, emit, zero_based)
    result = {"model": str(model), "store": store, **result}
    return session.finish(result, describe(result), only_told=True)


def describe(result: dict[str, Any]) -> str:
    """Metrics, and the confusion matrix if it is small, as text."""
    rows = text.count(result["n_rows"]) + (", weighted" if result["weighted"] else "")
    cost = [("time", text.seconds(result["seconds"])), ("memory", text.memory(result["memory"]))]
    if "mse" in result:
        lines = [
            ("rows", rows),
            ("chosen", text.chosen(result)),
            ("mean squared error", text.number(result["mse"])),
            ("mean absolute error", text.number(result["mae"])),
            ("R2", text.number(result["r2"])),
        ]
        return text.rows([*lines, *cost])
    if "subset_accuracy" in result:
        return text.rows([("rows", rows), *_of_labels(result), *cost]) + "\n" + _label_table(result)
    rough = " (from binned scores)" if result["binned"] else ""
    lines = [
        ("rows", rows),
        ("chosen", text.chosen(result)),
        ("accuracy", text.number(result["accuracy"], 5)),
        ("balanced accuracy", text.number(result["balanced_accuracy"], 5)),
        (f"F1 ({result['average']})", text.number(result["f1"], 5)),
        ("ROC AUC", text.number(result["roc_auc"], 5) + rough),
        ("average precision", text.number(result["average_precision"], 5) + rough),
    ]
    return text.rows([*lines, *cost]) + "\n" + _table(result)


def _of_labels(result: dict[str, Any]) -> list[tuple[str, object]]:
    """Metrics for rows with several labels."""
    micro, macro = result["micro"], result["macro"]
    rough = " (from binned scores)" if result["binned"] else ""
    return [
        ("chosen", text.chosen(result)),
        ("all labels right", text.number(result["subset_accuracy"], 5)),
        ("Hamming loss", text.number(result["hamming_loss"], 5)),
        ("F1 (micro)", text.number(micro["f1"], 5)),
        ("F1 (macro)", text.number(macro["f1"], 5)),
        ("ROC AUC (macro)", text.number(macro["roc_auc"], 5) + rough),
        ("average precision", text.number(macro["average_precision"], 5) + rough),
    ]


def _label_table(result: dict[str, Any]) -> str:
    """A line for each of the first labels."""
    shown = result["labels"][:_LARGEST_TABLE]
    width = max(len(text.label(one["label"])) for one in shown)
    lines = [f"  {'label':<{max(width, 5)}}  {'rows':>10}  precision     recall         F1        AUC"]
    for one in shown:
        figures = (one["precision"], one["recall"], one["f1"], one["roc_auc"])
        cells = "  ".join(f"{text.number(value, 5):>9}" for value in figures)
        lines.append(f"  {text.label(one['label']):<{max(width, 5)}}  {one['n_true']:>10,.6g}  {cells}")
    if len(shown) < len(result["labels"]):
        lines.append(f"  {len(result['labels']) - len(shown)} more: see --json")
    return "\n".join(lines)


def _table(result: dict[str, Any]) -> str:
    labels, matrix = [text.label(label) for label in result["classes"]], result["confusion_matrix"]
    if len(labels) > _LARGEST_TABLE:
        return f"  confusion matrix of {len(labels)} labels: see --json"
    cells = [[f"{value:,.6g}" for value in row] for row in matrix]
    width = max(len(item) for item in [*labels, *(cell for row in cells for cell in row)])
    side = max(len(label) for label in labels)
    head = "  " + " " * side + "  " + "  ".join(f"{label:>{width}}" for label in labels) + "   <- predicted"
    body = [
        f"  {label:>{side}}  " + "  ".join(f"{cell:>{width}}" for cell in row)
        for label, row in zip(labels, cells, strict=True)
    ]
    return "\n".join(["  confusion matrix, a line for each true label:", head, *body])
