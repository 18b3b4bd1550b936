"""Options that several commands share, and the FitConfig that they make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_args

import click
from click.core import ParameterSource

from bigsvm.cli.types import ClassWeight, Duration, Gamma, Setting, Size
from bigsvm.config import KERNELS, LOSSES, WSS, Bias, FitConfig, MultiClass, Stop
from bigsvm.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

label_options = [
    click.option("--label", metavar="NAME", help="Array of labels, such as obs/label."),
    click.option("--weight", metavar="NAME", help="Array of sample weights, such as obs/weight."),
]

empty_option = click.option(
    "--empty-chunks",
    type=click.Choice(["refuse", "zeros"]),
    default="refuse",
    show_default=True,
    help="Chunks that an unsealed Zarr store lacks; zeros: they hold the fill value, as you vouch until it changes.",
)
store_options = [*label_options, empty_option]
"""How a store is opened."""

_problem = [
    click.option(
        "-s",
        "--solver",
        default=FitConfig.solver,
        show_default=True,
        help="Solver by name; auto chooses by loss, bias, shape and memory.",
    ),
    click.option(
        "--loss",
        type=click.Choice(LOSSES),
        default=FitConfig.loss,
        show_default="squared_hinge; hinge with a kernel",
        help="Loss of the margin, or of the residual (epsilon_insensitive: regression).",
    ),
    click.option("-c", "--c", type=float, metavar="C", help="Cost of the sum form, as in LIBLINEAR.  [default: 1.0]"),
    click.option("--lambda", type=float, help="Lambda of the mean form instead of C: C = 1 / (lambda n_samples)."),
    click.option(
        "--bias",
        type=click.Choice(get_args(Bias)),
        default=FitConfig.bias,
        show_default="augmented; free with a kernel",
        help="augmented: a constant feature, regularised like the others (LIBLINEAR's -B); free: not regularised.",
    ),
    click.option(
        "-B",
        "--bias-scale",
        type=float,
        default=FitConfig.bias_scale,
        show_default=True,
        help="Value of the constant feature.",
    ),
    click.option(
        "--class-weight",
        type=ClassWeight(),
        metavar="balanced|LABEL=WEIGHT,...",
        help="Multiplies C for the rows of a class.",
    ),
    click.option(
        "--multi-class",
        type=click.Choice(get_args(MultiClass)),
        show_default="ovo with a kernel, else ovr",
        help="More than two classes: each against the rest, or a model for each pair of them.",
    ),
    click.option(
        "--epsilon",
        type=float,
        default=FitConfig.epsilon,
        show_default=True,
        help="Regression: errors up to this cost nothing, in units of the target.",
    ),
    click.option(
        "--set",
        type=Setting(),
        multiple=True,
        metavar="KEY=VALUE",
        help="A parameter of the solver; repeatable.",
    ),
]

_kernel = [
    click.option(
        "--kernel",
        type=click.Choice(KERNELS),
        default=FitConfig.kernel,
        show_default=True,
        help="rbf: exp(-gamma |x-z|^2); poly: (gamma x.z + coef0)^degree; sigmoid: tanh(gamma x.z + coef0); "
        "precomputed: the store's own values, column j for row j.",
    ),
    click.option(
        "--gamma",
        type=Gamma(),
        metavar="auto|FLOAT",
        default=FitConfig.gamma,
        show_default=True,
        help="Of rbf, poly and sigmoid; auto: 1 / n_features.",
    ),
    click.option("--degree", type=int, metavar="N", default=FitConfig.degree, show_default=True, help="Of poly."),
    click.option("--coef0", type=float, default=FitConfig.coef0, show_default=True, help="Of poly and sigmoid."),
    click.option(
        "--assume-psd",
        is_flag=True,
        help="Vouch for a precomputed kernel, sigmoid, or poly with coef0 < 0: it is positive semidefinite on these "
        "rows.  Gaps are then proved on your word; what is seen to refute it is refused.",
    ),
    click.option(
        "--wss",
        type=click.Choice(get_args(WSS)),
        default=FitConfig.wss,
        show_default=True,
        help="How smo chooses its rows: 1 maximal violating pair, 2 and 3 second order, keerthi2, wr each row once, "
        "wr+3 that and then 3.",
    ),
    click.option(
        "--working-set", type=int, metavar="Q", help="Rows worked on at one time.  [default: as the solver finds best]"
    ),
    click.option("--no-shrinking", is_flag=True, help="Leave no row out of the search, however far from moving."),
    click.option(
        "--cache-memory",
        type=Size(),
        metavar="SIZE|PCT%",
        help="Of --memory, for rows of kernel values.  [default: what the rest leaves]",
    ),
]

_stopping = [
    click.option(
        "-e",
        "--tol",
        type=float,
        default=FitConfig.tol,
        show_default=True,
        help="Relative duality gap to prove: (P - D) / P.",
    ),
    click.option(
        "--stop",
        type=click.Choice(get_args(Stop)),
        default=FitConfig.stop,
        show_default=True,
        help="gap: stop on the proof; paper: on the solver's own published rule.",
    ),
    click.option("--max-passes", type=float, metavar="N", help="Stop after so many passes over the data."),
    click.option("--max-time", type=Duration(), metavar="DURATION", help="Stop after so long: 90s, 15m, 2h."),
    click.option("--seed", type=int, default=FitConfig.seed, show_default=True, help="Seed of all random orders."),
    click.option(
        "--blocks-per-round",
        type=int,
        metavar="K",
        default=FitConfig.blocks_per_round,
        show_default=True,
        help="Blocks solved apart before they are added up; part of the mathematics.",
    ),
    click.option("--no-dual", is_flag=True, help="Leave alpha out of the model; certify can then prove less."),
]

_storage = [
    click.option(
        "--scratch",
        metavar="DIR",
        help="Folder for staged copies.  [default: a folder of yours in the temporary folder]",
    ),
    click.option("--scratch-limit", type=Size(percent=False), metavar="SIZE", help="Bytes to take there at most."),
    click.option(
        "--stage",
        type=click.Choice(["auto", "none"]),
        default=FitConfig.stage,
        show_default=True,
        help="none: read the store itself in every pass.",
    ),
]

_running = [
    click.option(
        "--memory",
        type=Size(),
        metavar="SIZE|PCT%",
        help="Memory on top of the base.  [default: half of what the limit in force leaves]",
    ),
    click.option("--threads", type=int, metavar="N", help="[default: the cores this process may use]"),
    click.option("--scheduler", metavar="threads|processes|ADDR", help="Where tasks run.  [default: threads]"),
    click.option("--scheduler-file", metavar="FILE", help="File of a running dask scheduler."),
    click.option("--workers", type=int, metavar="N", help="Worker processes."),
]

fit_options = [*store_options, *_problem, *_kernel, *_stopping, *_running[:1], *_storage, *_running[1:]]
"""All that a fit takes, and therefore its plan."""

run_options = _running
"""What a command takes that only reads the data once."""


def add(options: list[Callable[[F], F]]) -> Callable[[F], F]:
    """Decorator: add options in the order of the list."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def config_of(ctx: click.Context, values: dict[str, Any]) -> FitConfig:
    """The config that option values mean; those not given fall to FitConfig's defaults.

    Raises UsageError where C and lambda are both asked for, or a value makes no sense.
    """
    values = dict(values)
    for name in ("bias", "loss"):
        if ctx.get_parameter_source(name) is ParameterSource.DEFAULT:
            values.pop(name)  # kernel solvers, and some papers, have others
    if values.pop("no_shrinking", False):
        values["shrinking"] = False
    options: dict[str, Any] = {}
    cost, lam = values.pop("c", None), values.pop("lambda", None)
    if cost is not None and lam is not None:
        ranks = [_rank(ctx, "c"), _rank(ctx, "lambda")]
        if ranks[0] == ranks[1]:
            raise UsageError("--c and --lambda exclude each other", hint="C = 1 / (lambda n_samples)")
        # One was typed and the other stands in a file or a variable: what was typed wins.
        cost, lam = (cost, None) if ranks[0] < ranks[1] else (None, lam)
    if cost is not None:
        options["C"] = cost
    if lam is not None:
        options["lam"] = lam
    settings = values.pop("set", ())
    if settings:
        options["solver_options"] = dict(settings)
    options.update({name: value for name, value in values.items() if value is not None})
    return FitConfig.of(**options)


def _rank(ctx: click.Context, name: str) -> int:
    order = [ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT, ParameterSource.DEFAULT_MAP]
    source = ctx.get_parameter_source(name)
    return order.index(source) if source in order else len(order)
