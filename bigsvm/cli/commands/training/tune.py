"""bigsvm tune: cross-validation over a grid, whose models share passes over the data."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bigsvm.cli import text
from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.commands.training.fit import check_output, save_once, stem_of
from bigsvm.cli.job import CHECKPOINTS
from bigsvm.cli.options import (
    add,
    config_of,
    label_change_options,
    normalize_option,
    option_of,
    scale_option,
    split_option,
    store_options,
    take_rows,
)
from bigsvm.cli.record import run_folder
from bigsvm.cli.session import Session
from bigsvm.cli.types import ClassWeight, OutputPath, Source
from bigsvm.config import TYPED
from bigsvm.errors import UsageError
from bigsvm.units import show_bytes

if TYPE_CHECKING:
    from bigsvm.run.tune.result import Row, TuneResult

_SEARCHED = ("C", "lam", "class_weight", "gamma")
METRICS = ("accuracy", "balanced_accuracy", "f1", "roc_auc", "average_precision", "r2", "mse", "mae")


class _Weights(click.ParamType):
    """A class weight, or `none`."""

    name = "class weight"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return "none" if value == "none" else ClassWeight().convert(value, param, ctx)


class _Gammas(click.ParamType):
    """Numbers, `auto` or `scale` between commas."""

    name = "gammas"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, list | tuple):
            return list(value)
        try:
            return [part if part in ("auto", "scale") else float(part) for part in str(value).split(",")]
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers, `auto` and `scale`", param, ctx)


_own_options = [
    click.option(
        "--Cs",
        "--c-grid",
        "costs", default="1e-3:1e3:7", show_default=True, metavar="LOW:HIGH:N|C,C,...",
        help="Values of C: N values, evenly spaced on a log scale; or by a factor, as 2^-5:2^15:2^2; or a list.",
    ),
    click.option(
        "--class-weights", type=_Weights(), multiple=True, metavar="none|balanced|LABEL=WEIGHT,...",
        help="A class weight to try; repeatable.  balanced uses the training rows.  [default: none]",
    ),
    click.option(
        "--gammas", type=_Gammas(), metavar="G,G,...",
        help="Values of gamma to try, for rbf, poly and sigmoid: numbers, auto, scale.  [default: auto]",
    ),
    click.option("--folds", type=int, default=5, show_default=True, help="Folds, chosen by a hash of the row number."),
    click.option("--group", metavar="COLUMN", help="Put rows with the same value, such as obs/patient, in one fold."),
    click.option("--fold", metavar="COLUMN", help="Use one fold for each value of this column, such as obs/fold."),
    click.option(
        "--metric", type=click.Choice(METRICS), help="Metric that decides.  [default: accuracy; r2 for a regression]"
    ),
    click.option(
        "--choose", type=click.Choice(["best", "one-se"]), default="best", show_default=True,
        help="one-se: the smallest C whose mean is within one standard error of the best.",
    ),
    click.option("--refit", is_flag=True, help="Then fit the chosen C on all rows; -o names the model."),
    click.option(
        "-o", "--out", type=OutputPath(), metavar="DIR",
        help="Folder of the search, which can be resumed; with --refit the model.  [default: none; STEM.model]",
    ),
    click.option(
        "--run", type=OutputPath(), metavar="DIR",
        help="Folder of the search, if -o names the model.  [default: MODEL.run]",
    ),
    click.option(
        "--sizes", metavar="S,S,...",
        help="Learning curve: search on these shares of the rows, such as 0.1,0.3,1, and score on the same rows.",
    ),
    click.option("--csv", "table", type=OutputPath(), metavar="FILE", help="Write the table as CSV."),
    click.option("--overwrite", is_flag=True, help="Replace an existing model, table or record, and another search."),
    click.option("--allow-unconverged", is_flag=True, help="Exit with 0 even if a gap was not proved."),
]  # fmt: skip

_fit_options = [option_of(name) for name in TYPED.values() if name not in _SEARCHED]


@bigsvm_command(
    help="Choose C (class weights, gamma) by cross-validation on STORE.  All models of a linear search are trained on "
    "the same passes over the data, and each stops at its own proved gap.\n\n"
    "The same command continues a stopped search.  Exit code 0: every gap is proved; 4: some gap is not."
)
@click.argument("store", type=Source())
@add(
    [*_own_options, *store_options, scale_option, normalize_option, split_option, *label_change_options, *_fit_options]
)
@click.pass_context
def command(
    ctx: click.Context,
    session: Session,
    store: str,
    label: str | None,
    weight: str | None,
    empty_chunks: Any,
    table: Path | None,
    **options: Any,
) -> int:
    own = {name: options.pop(name) for name in (
        "costs", "class_weights", "gammas", "folds", "group", "fold", "metric", "choose", "refit", "out", "run",
        "overwrite", "allow_unconverged", "sizes",
    )}  # fmt: skip
    opened = {"label": label, "weight": weight, "empty_chunks": empty_chunks, "split": "recorded", **take_rows(options)}
    config = config_of(ctx, options)
    if own["sizes"] is not None and own["refit"]:
        raise UsageError("a learning curve cannot refit a model", hint="leave out --refit or --sizes")
    if own["sizes"] is not None and table is not None:
        raise UsageError("--csv has a line for each candidate, but --sizes gives one for each size", hint="use --json")
    model, run = _places(store, own)

    from bigsvm.files.outputs import check_plain_output, new_output
    from bigsvm.run.start.targets import open_for
    from bigsvm.run.tune.folds import make_folds
    from bigsvm.run.tune.grid import grid_of
    from bigsvm.run.tune.search import Asked, metric_of, tune_store

    grid = grid_of(config, own["costs"], list(own["class_weights"]) or None, own["gammas"])
    if table is not None:
        check_plain_output(table, own["overwrite"])
    if model is not None:
        check_output(model, own["overwrite"] or (run is not None and run.exists()), ("model.json",), "model")
    data = open_for(store, config.regression, **opened)
    session.warn_of(data)
    folds = make_folds(data, store, own["folds"], own["group"], own["fold"], config.seed, opened)
    metric = metric_of(own["metric"], data)
    asked = Asked(grid, folds, metric, own["choose"] == "one-se", own["refit"], own["overwrite"])
    if own["sizes"] is not None:
        return _learning_curve(session, data, config, asked, run, own)
    with session.watching() as emit, nullcontext() if run is None else run_folder(run):
        result = tune_store(data, config, asked, emit, run)
        if result.refit is not None:
            assert model is not None
            save_once(result.refit, model, own["overwrite"])
            if run is not None:  # before that, a kill would cost the fit
                shutil.rmtree(run / CHECKPOINTS, ignore_errors=True)
    session.warn_of(result)
    if table is not None:
        with new_output(table, own["overwrite"]) as file:
            file.write(result.csv().encode())
    document = {**result.document(), "run": None if run is None else str(run), "model": None}
    if result.refit is not None:
        document["refit"] = result.refit.document(str(model))
        document["model"] = str(model)
    code = result.exit_code(own["allow_unconverged"])
    if result.refit is not None:
        code = max(code, result.refit.exit_code(own["allow_unconverged"]))
    return session.finish(document, describe(result, document), result.status, code)


def _learning_curve(session: Session, data: Any, config: Any, asked: Any, run: Path | None, own: dict[str, Any]) -> int:
    from bigsvm.run.tune.sizes import learning_curve, parse_shares

    shares = parse_shares(own["sizes"])
    with session.watching() as emit, nullcontext() if run is None else run_folder(run):
        curve = learning_curve(data, config, asked, shares, emit, run)
    session.warn_of(curve)
    document = {**curve.document(), "run": None if run is None else str(run)}
    lines = [["share", "rows", "C", curve.metric, "relative gap", ""]]
    for point in curve.points:
        row = point.row
        said = "" if row.status == "converged" else row.status
        cells = [f"{point.share:g}", text.count(round(point.n_rows)), f"{row.candidate.C:g}"]
        lines.append([*cells, _score(row, curve.metric), f"{max(row.gaps):.1e}", said])
    rough = any(point.row.is_rough(curve.metric) for point in curve.points)
    legend = f"\n {_ROUGH.removeprefix(',')}" * rough
    shown = (
        _aligned(lines)
        + legend
        + ("" if run is None else f"\nsearch  {text.label(run)}; bigsvm plot {text.label(run)} draws the curve")
    )
    return session.finish(document, shown, curve.status, curve.exit_code(own["allow_unconverged"]))


def _places(store: str, own: dict[str, Any]) -> tuple[Path | None, Path | None]:
    """(folder of the model, folder of the search).  Raises UsageError."""
    if not own["refit"]:
        if own["run"] is not None and own["out"] is not None:
            raise UsageError("without --refit there is no model, and -o and --run both name the folder of the search")
        return None, own["run"] or own["out"]
    model = own["out"] or Path(f"{stem_of(store)}.model")
    return model, own["run"] or Path(f"{model}.run")


def describe(result: TuneResult, document: dict[str, Any]) -> str:
    """The table, the choice and the cost, as text."""
    row = result.rows[result.chosen]
    how = "within one standard error of the best" if result.chosen != result.best else "best"
    chosen = ", ".join(f"{name} = {_short(value)}" for name, value in result.best_params.items())
    figures = result.figures
    read = (
        f"{show_bytes(figures['bytes_read'])}, {figures['passes']:.1f} passes over {show_bytes(figures['data_bytes'])}"
    )
    lines = [
        ("chosen", f"{chosen} ({how}): {result.metric} {_score(row, result.metric)}"),
        (
            "folds",
            f"{result.folds.n_folds} by {result.folds.by}, of {text.listed(map(text.count, result.fold_sizes))} rows",
        ),
        ("models", f"{text.count(figures['n_models'])} by {figures['solver']}, {_FORMS[figures['form']]}"),
        ("read", read + " to train, and one to score"),
        ("time", f"{text.seconds(figures['seconds']['training'])} of training"),
        ("memory", text.memory(figures["memory"])),
        ("search", document["run"]),
        ("model", document["model"]),
    ]
    return _table(result) + "\n" + text.rows(lines)


_ROUGH = ", ~ from binned scores"
_FORMS = {
    "shared": "all on the same passes",
    "by fold": "fold by fold",
    "shared, the hard ones by fold": "all on the same passes, except hard ones, which are trained fold by fold",
    "one by one": "one after another",
}


def _table(result: TuneResult) -> str:
    """A line for each candidate: * the best one, 1 the smallest C within one standard error of it."""
    metrics = list(result.rows[0].scores)
    shown = [result.metric, *(metric for metric in metrics if metric != result.metric)][:3]
    weights = any(row.candidate.class_weight is not None for row in result.rows)
    gammas = any(row.candidate.gamma is not None for row in result.rows)
    head = ["", "C", *(["class weight"] * weights), *(["gamma"] * gammas), *shown, "relative gap", ""]
    lines = [head]
    for number, row in enumerate(result.rows):
        candidate = row.candidate
        mark = "*" * (number == result.best) + "1" * (number == result.one_se)
        cells = [mark, f"{candidate.C:g}"]
        cells += [_short(candidate.class_weight or "none")] * weights + [_short(candidate.gamma)] * gammas
        cells += [_score(row, metric) for metric in shown]
        lines.append([*cells, f"{max(row.gaps):.1e}", "" if row.status == "converged" else row.status])
    rough = any(row.is_rough(metric) for row in result.rows for metric in shown)
    return f"{_aligned(lines)}\n  * best mean, 1 smallest C within one standard error of it{_ROUGH * rough}"


def _aligned(lines: list[list[str]]) -> str:
    """Cells, aligned in columns."""
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    table = ["  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join(table)


def _score(row: Row, metric: str) -> str:
    mean, error = row.mean(metric), row.error(metric)
    if mean is None:
        return "-"
    return "~" * row.is_rough(metric) + f"{mean:.4f}" + ("" if error is None else f" ± {error:.4f}")


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{text.label(label)}={weight:g}" for label, weight in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)
