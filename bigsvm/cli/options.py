"""Options that several commands share, and the FitConfig that they make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from bigsvm.cli.habits import solver_meant
from bigsvm.cli.types import ClassWeight, Duration, Gamma, Names, OneOf, Renames, Setting, Size
from bigsvm.config import OPTIONS, TYPED, FitConfig
from bigsvm.errors import UsageError
from bigsvm.store.remote.place import storing_by
from bigsvm.store.remote.settings import storing

F = TypeVar("F", bound=Callable[..., Any])


def _label_options(said: str) -> list[Callable[[F], F]]:
    """--label and --weight.  said : where their defaults come from first, as help says it"""
    return [
        click.option(
            "--label", metavar="NAME", help=f"Column of labels, such as label or obs/label.  [default: {said}label]"
        ),
        click.option(
            "--weight",
            metavar="NAME",
            help="Column of sample weights, such as weight or obs/weight; '' for none.  "
            f"[default: {said}weight, if there is such a column]",
        ),
    ]


labels_option = click.option(
    "--labels",
    type=Names(),
    metavar="A,B,...",
    help="For rows with several labels: one true/false column for each label, or one text column such as 1,5.",
)

empty_option = click.option(
    "--empty-chunks",
    type=click.Choice(["refuse", "zeros"]),
    default="refuse",
    show_default=True,
    help="What to do if chunks of an unsealed Zarr store are absent.  zeros: treat them as full of the fill value.",
)


def _apply_storage_options(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> None:
    """Apply --storage-option for the duration of the command.  Like the environment, it is not recorded."""
    options = {}
    for number, value in enumerate(values, start=1):
        name, separator, text = value.partition("=")
        if not separator or not name.strip():  # the message does not repeat the value, which may be a secret
            raise UsageError(
                f"storage option number {number} is not K=V", hint="write --storage-option region=eu-west-1"
            )
        options[name.strip()] = text
    ctx.with_resource(storing(options))


storage_option = click.option(
    "--storage-option",
    multiple=True,
    metavar="K=V",
    expose_value=False,
    callback=_apply_storage_options,
    help="For s3://, gs://, az://: endpoint, region, skip_signature, deadline, ...; repeatable.  "
    "[default: from the environment]",
)
row_options = [
    click.option("--matrix", metavar="PATH", help="For AnnData: X, layers/NAME, obsm/NAME or raw/X.  [default: X]"),
    click.option(
        "--columns",
        type=Names(),
        metavar="A,B,...",
        help="For tables and Parquet: the columns to use as features, or patterns such as 'x*'.  For a file without a "
        "header: the names of all columns, or `numbers`.  [default: all but labels and weights]",
    ),
    click.option(
        "--hash-bits",
        type=click.IntRange(1, 30),
        metavar="N",
        help="For tables: hash all text columns to 2^N features.  [default: one feature for each value]",
    ),
    click.option(
        "--missing",
        type=click.Choice(["refuse", "drop"]),
        help="What to do with rows without a label; drop leaves them out.  [default: refuse]",
    ),
    click.option(
        "--rows",
        metavar="CONDITION",
        help='Use only rows that meet the condition, such as "cell_type in (T, B) and n_genes > 500".  [default: all]',
    ),
]
"""Options that select the rows of a store, beside label and weight."""
scale_option = click.option(
    "--scale",
    type=click.Choice(["none", "maxabs", "standard", "unit-norm"]),
    help="maxabs: divide columns by their largest |value|; standard: columns to mean 0 and deviation 1; unit-norm: "
    "divide rows by their norm.  The model applies it to new rows.  [default: none]",
)
normalize_option = click.option(
    "--normalize",
    metavar="STEPS",
    help="total=1e4,log1p or one of them: scale rows to a total, then log(1 + x).  The model applies it to new rows.",
)
split_option = click.option(
    "--split",
    type=float,
    metavar="SHARE",
    help="Train on this share of the rows, such as 0.9, chosen by a hash of the row number; test on the others.  1: all"
    " rows.  [default: what ingest --split recorded in STORE, else 1]",
)
label_change_options = [
    click.option(
        "--positive",
        metavar="LABEL",
        help="Train this class against all others; labels become true and false.  The model keeps the option.",
    ),
    click.option(
        "--label-map",
        type=Renames(),
        metavar="A=X,B=X,...",
        help="Rename labels; labels with the same new name become one class.  The model keeps the option.",
    ),
]
ROWS = (
    "labels",
    "matrix",
    "columns",
    "hash_bits",
    "missing",
    "rows",
    "scale",
    "normalize",
    "split",
    "positive",
    "label_map",
)
_opening_options = [labels_option, empty_option, *row_options, storage_option]
store_options = [*_label_options(""), *_opening_options]
"""All options for opening a store."""
judged_options = [*_label_options("the column that MODEL was trained with, else "), *_opening_options]
"""The same for a store to which a model is applied."""


def take_rows(options: dict[str, Any]) -> dict[str, Any]:
    """Remove the options named in ROWS from `options`; returns those that were given, as keywords of `open_store`."""
    found = {name: options.pop(name) for name in ROWS if name in options}
    return {name: value for name, value in found.items() if value is not None}


_TYPES: dict[str, Callable[[], Any]] = {
    "text": lambda: str,
    "int": lambda: int,
    "float": lambda: float,
    "size": lambda: Size(percent=False),
    "size or share": Size,
    "duration": Duration,
    "gamma": Gamma,
    "class weight": ClassWeight,
    "settings": Setting,
}


def option_of(name: str) -> Callable[[F], F]:
    """The click option for a field of FitConfig."""
    option, default = OPTIONS[name], getattr(FitConfig, name, None)
    flags = option.flags.split()
    if option.kind == "flag":
        return click.option(*flags, is_flag=True, help=option.help)
    kind = OneOf(option.choices) if option.choices else _TYPES[option.kind]()
    repeated, shown = option.kind == "settings", option.shown is None or option.shown or False
    # click gets only the defaults that help shows: C and lambda exclude each other, and must be absent by default.
    given = {"default": default} if shown and default is not None else {}
    # click would put a default in words into parentheses.
    words = f"{option.help}  [default: {shown}]" if isinstance(shown, str) else option.help
    return click.option(
        *flags, type=kind, metavar=option.metavar, help=words, multiple=repeated, show_default=shown is True, **given
    )


fit_options = [
    *store_options,
    scale_option,
    normalize_option,
    split_option,
    *label_change_options,
    *(option_of(name) for name in TYPED.values()),
]
"""All options of a fit, and so of its plan."""

run_options = [option_of(name) for name in TYPED.values() if OPTIONS[name].reading]
"""Options of commands that only read the data once."""


def add(options: list[Callable[[F], F]]) -> Callable[[F], F]:
    """Decorator: add options in the order of the list."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def config_of(ctx: click.Context, values: dict[str, Any]) -> FitConfig:
    """The FitConfig for option values; options that were not given have FitConfig's defaults.

    Raises UsageError if both C and lambda are given, or for a bad value.
    """
    options = {TYPED[name]: value for name, value in values.items() if value is not None}
    meant = solver_meant(str(options.get("solver", "")))
    if meant:
        raise UsageError(f"solvers go by their names, not {options['solver']!r}", hint=meant)
    for name in ("bias", "loss"):
        if ctx.get_parameter_source(name) is ParameterSource.DEFAULT:
            options.pop(name)  # `FitConfig.of` has other defaults for kernels and for some papers
    if "C" in options and "lam" in options:
        ranks = [_rank(ctx, "c"), _rank(ctx, "lambda")]
        if ranks[0] == ranks[1]:
            raise UsageError("--c and --lambda exclude each other", hint="C = 1 / (lambda n_samples)")
        # One was typed, the other is set in a file or a variable: what was typed wins.
        options.pop("lam" if ranks[0] < ranks[1] else "C")
    for name in options:
        if OPTIONS[name].negated:
            options[name] = not options[name]
        if OPTIONS[name].kind == "settings":
            options[name] = dict(options[name])
    config = FitConfig.of(**options)
    ctx.with_resource(storing_by(config))
    return config


def _rank(ctx: click.Context, name: str) -> int:
    """Precedence of the source of an option: 0 if it was typed."""
    order = [ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT, ParameterSource.DEFAULT_MAP]
    source = ctx.get_parameter_source(name)
    return order.index(source) if source in order else len(order)
