"""bigsvm certify: proves the gap of a saved model, independently of the run that made it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bigsvm.cli import text
from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.options import add, config_of, judged_options, run_options, take_rows
from bigsvm.cli.session import Session
from bigsvm.cli.types import LocalPath, Source


@bigsvm_command(
    help="Prove the duality gap of MODEL on STORE again, in one pass, from the saved arrays alone.\n\n"
    "Without a saved dual point (fit --no-dual) only a weaker bound can be given."
)
@click.argument("model", type=LocalPath())
@click.argument("store", type=Source())
@add(judged_options + run_options)
@click.pass_context
def command(
    ctx: click.Context,
    session: Session,
    model: Path,
    store: str,
    label: str | None,
    weight: str | None,
    empty_chunks: Any,
    **options: Any,
) -> int:
    chosen = take_rows(options)
    config = config_of(ctx, options)

    from bigsvm.model.linear_model import is_regression, rows_of_model, weight_as_trained
    from bigsvm.run.proof.certify import certify_model
    from bigsvm.run.start.targets import open_for

    like = rows_of_model(model)
    if "chosen" in like:
        chosen.setdefault("rows", like["chosen"]["rows"])
    if "split" in like:
        chosen["part"] = "train"
    weight = weight_as_trained(model, weight)
    data = open_for(
        store, is_regression(model), label=label, weight=weight, empty_chunks=empty_chunks, like=like, **chosen
    )
    session.warn_of(data)
    with session.watching() as emit:
        result = certify_model(model, data, config, emit)
    for warning in result.pop("warnings", []):
        session.warn(warning)
    result = {**result, "model": str(model), "store": store}
    return session.finish(result, describe(result), only_told=True)


def describe(result: dict[str, Any]) -> str:
    """The certificate as a few lines of text."""
    lines = [
        ("certificate", result.get("certificate")),
        ("objective", text.number(result.get("objective"), 10)),
        ("dual objective", text.number(result.get("dual_objective"), 10)),
        ("duality gap", text.number(result.get("duality_gap"), 4)),
        ("relative gap", text.number(result.get("relative_gap"), 4)),
        ("from", result.get("bound")),
        ("time", text.seconds(result.get("seconds"))),
        ("memory", text.memory(result.get("memory"))),
    ]
    return text.rows(lines)
