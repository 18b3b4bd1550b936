"""bigsvm import: reads a model that another program trained, or that `bigsvm export` wrote as .npz."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bigsvm.cli import text
from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.session import Session
from bigsvm.cli.types import AnyPath, OutputPath


@bigsvm_command(
    help="Make a bigsvm model from FILE, written by LIBLINEAR's `train`, LIBSVM's `svm-train`, or `bigsvm export` as "
    ".npz.\n\nA model of another program predicts as it did there, and has no certificate.  Its file does not say "
    "which C it was trained with: with --c, bigsvm certify can judge a linear model on its rows."
)
@click.argument("file", type=AnyPath())
@click.argument("model", required=False, type=OutputPath())
@click.option("-o", "--out", type=OutputPath(), metavar="MODEL", help="Folder of the model to write.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["liblinear", "libsvm", "npz"]),
    help="Format of FILE.  [default: npz if its suffix is .npz]",
)
@click.option("-c", "--c", "cost", type=float, metavar="C", help="The C that the model was trained with.")
@click.option("--epsilon", type=float, help="For a regression: its epsilon (-p of those programs).")
@click.option(
    "--n-features",
    type=click.IntRange(1),
    metavar="D",
    help="Number of features.  [default: from FILE; for LIBSVM the highest index of a support vector]",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing MODEL.")
def command(
    session: Session,
    file: Path,
    model: Path | None,
    out: Path | None,
    form: Any,
    cost: float | None,
    epsilon: float | None,
    n_features: int | None,
    overwrite: bool,
) -> int:
    if (model is None) == (out is None):
        raise click.UsageError("name the model to write once: bigsvm import FILE -o MODEL")

    from bigsvm.files.atomic import check_replaceable
    from bigsvm.files.outputs import check_apart
    from bigsvm.model.exchange.exchange import import_model
    from bigsvm.model.model_files import MARKS

    target = out or model
    assert target is not None
    check_apart({"the model": target}, {"the file": file})
    check_replaceable(target, overwrite, MARKS, "model")
    if form is None and file.suffix != ".npz":
        raise click.UsageError(f"name the format of {file.name}: --format liblinear or libsvm")
    made = import_model(file, form, C=cost, epsilon=epsilon, n_features=n_features)
    made.save(target, overwrite=overwrite)
    imported = made.about.get("imported")
    for warning in (imported or {}).get("warnings", ()):
        session.warn(warning)
    result = {
        "file": str(file),
        "model": str(target),
        "format": form or "npz",
        "kind": made.kind,
        "classes": made.classes.tolist(),
        "n_features": made.n_features,
        "n_models": made.n_models,
        "imported": imported,
        "problem": made.about.get("problem", {}),
    }
    lines = [
        ("model", repr(made)),
        ("certificate", "none: trained by another program" if imported else "of the model that was exported"),
    ]
    return session.finish(result, f"{text.label(target)}\n" + text.rows(lines), made=True)
