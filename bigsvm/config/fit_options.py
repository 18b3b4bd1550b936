"""The table of options of a fit: default, flag, help, what each changes, and which solvers use it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, get_args

from bigsvm.config.option import Option, files, place, result
from bigsvm.config.problem_names import KERNELS, LOSSES
from bigsvm.config.solver_table import KERNEL_SOLVERS, SOLVER_TABLE

Bias = Literal["augmented", "free", "none"]
Stop = Literal["gap", "paper"]
MultiClass = Literal["ovr", "ovo", "crammer-singer"]
WSS = Literal["1", "2", "3", "keerthi2", "wr", "wr+3"]
Stage = Literal["auto", "none"]


@dataclass(frozen=True)
class FitOptions:
    """Options of a fit, in the order of their help.  `FitConfig` is this record with its values checked.

    The command line, configuration files, records of runs, identities and solvers are all made from this one table.
    """

    # the problem
    solver: str = result(
        "auto", "-s --solver",
        f"auto chooses by loss, bias, shape and memory.  The solvers: {', '.join(SOLVER_TABLE)}.", metavar="NAME",
        shown=None,
    )  # fmt: skip
    loss: str = result(
        "squared_hinge", "--loss",
        "Loss function.  epsilon_insensitive and squared_epsilon_insensitive are for regression; nu_svc, nu_svr and "
        "one_class are LIBSVM's, with --nu; crammer_singer goes with --multi-class crammer-singer.",
        choices=LOSSES, shown="squared_hinge; hinge with a kernel",
    )  # fmt: skip
    C: float = result(
        1.0, "-c --c", "Weight of the sum of losses, as in LIBLINEAR.  [default: 1.0]", kind="float", metavar="C",
        positive=True,
    )  # fmt: skip
    lam: float | None = result(
        None, "--lambda", "Regularisation, instead of C: C = 1 / (lambda n_samples).", kind="float",
        positive=True,
    )  # fmt: skip
    """The lambda of the mean form; C = 1 / (lambda n_samples).  Excludes C."""
    bias: Bias = result(
        "augmented", "--bias",
        "augmented: a constant feature, regularised like the others (LIBLINEAR's -B); free: not regularised; none.",
        choices=get_args(Bias), shown="augmented; free with a kernel",
    )  # fmt: skip
    bias_scale: float = result(
        1.0, "-B --bias-scale", "Value of the constant feature.", kind="float", shown=None, positive=True
    )
    class_weight: str | dict[str, float] | None = result(
        None, "--class-weight", "Multiplies C for the rows of a class.  [default: 1 for every class that is not named]",
        kind="class weight", metavar="balanced|LABEL=WEIGHT,...",
    )  # fmt: skip
    """'balanced', or weights by label as text: {'1': 10.0}; labels not named weigh 1."""
    multi_class: MultiClass | None = result(
        None, "--multi-class",
        "For more than two classes.  ovr: each class against the rest; ovo: a model for each pair; crammer-singer: one "
        "loss of all classes (LIBLINEAR's -s 4).",
        choices=get_args(MultiClass), shown="ovo with a kernel, else ovr",
    )  # fmt: skip
    """One against the rest, every pair of classes, or all together, which is a hinge loss of its own; None: pairs for
    kernel solvers, as LIBSVM, else the rest."""
    epsilon: float = result(
        0.1, "--epsilon", "For regression: errors up to this size, in units of the target, cost nothing.", kind="float",
        shown=None,
    )  # fmt: skip
    """Half the width of the tube of the epsilon-insensitive losses, in units of the target."""
    nu: float = result(
        0.5, "--nu",
        "For nu_svc, nu_svr and one_class: at most this share of the rows lies within the margin, and at least this "
        "share are support vectors.", kind="float", shown=None, positive=True, solvers=("smo",),
    )  # fmt: skip
    """Above 0 and at most 1."""
    solver_options: dict[str, Any] = result(
        dict,
        "--set",
        "A parameter of the solver, such as max_features=10000; repeatable.",
        kind="settings",
        metavar="KEY=VALUE",
    )
    warm_start: str | None = result(
        None, "--warm-start",
        "Start from this model.  If its training rows are the first rows of STORE, they keep their dual variables.",
        metavar="MODEL",
    )  # fmt: skip
    """Folder of an earlier model.  In identities its digest stands for it: the same model may lie anywhere."""
    # kernels
    kernel: str = result(
        "linear", "--kernel",
        "rbf: exp(-gamma |x-z|^2); poly: (gamma x.z + coef0)^degree; sigmoid: tanh(gamma x.z + coef0); "
        "precomputed: the values of STORE, whose column j belongs to row j.",
        choices=KERNELS, shown=None,
    )  # fmt: skip
    gamma: str | float = result(
        "auto", "--gamma",
        "For rbf, poly and sigmoid.  auto: 1 / n_features; scale: 1 / (n_features * variance of X), as scikit-learn.",
        kind="gamma", metavar="auto|scale|FLOAT", shown=None,
    )  # fmt: skip
    """'auto' is 1 / n_features; 'scale' costs one more reading of the rows."""
    degree: int = result(3, "--degree", "For poly.", kind="int", metavar="N", shown=None)
    coef0: float = result(0.0, "--coef0", "For poly and sigmoid.", kind="float", shown=None)
    assume_psd: bool = result(
        False, "--assume-psd",
        "Assume that a precomputed kernel, sigmoid, or poly with coef0 < 0 is positive semidefinite on these rows.  "
        "Proofs then rest on this assumption; a fit that finds it false is refused.",
        kind="flag",
    )  # fmt: skip
    """The user vouches that a kernel which is not so by construction is positive semidefinite on these rows."""
    wss: WSS = result(
        "2", "--wss",
        "Rule by which smo chooses rows.  1: maximal violating pair; 2, 3: second order; keerthi2; wr: each row once; "
        "wr+3: wr, then 3.",
        choices=get_args(WSS), shown=None, solvers=("smo",),
    )  # fmt: skip
    """Rule by which a working set is chosen."""
    working_set: int | None = result(
        None, "--working-set", "Rows of a working set.  [default: chosen by the solver]", kind="int",
        metavar="Q", least=2, solvers=("smo", "rosen-block"),
    )  # fmt: skip
    """Rows of a working set; 2 is the textbook's; None: what the solver finds best."""
    shrinking: bool = result(
        True, "--no-shrinking", "Search all rows in every step, even rows that are unlikely to change.", kind="flag",
        negated=True, solvers=("smo",),
    )  # fmt: skip
    cache_memory: str | int | None = place(
        None, "--cache-memory", "Part of --memory for cached kernel rows.  [default: all that is free]",
        kind="size or share", metavar="SIZE|PCT%", solvers=KERNEL_SOLVERS,
    )  # fmt: skip
    """Bytes of kernel rows kept in memory; None: what the budget leaves."""
    # when to stop
    tol: float = result(
        1e-3, "-e --tol", "Relative duality gap to prove: (P - D) / P.", kind="float", shown=None, positive=True
    )
    stop: Stop = result(
        "gap", "--stop", "gap: stop when the gap is proved; paper: stop on the rule of the solver's paper.",
        choices=get_args(Stop), shown=None,
    )  # fmt: skip
    max_passes: float | None = result(
        None,
        "--max-passes",
        "Stop after this many passes over the data.  [default: no limit]",
        kind="float",
        metavar="N",
        positive=True,
    )
    max_time: float | None = place(
        None,
        "--max-time",
        "Stop after this time: 90s, 15m, 2h.  [default: no limit]",
        kind="duration",
        metavar="DURATION",
        positive=True,
    )
    """Seconds.  Where a run ends by it is the clock's choice, so a run may go on with another one."""
    seed: int = result(0, "--seed", "Seed of all random orders.", kind="int", shown=None)
    shards: int | None = result(
        None, "--shards",
        "Number of parts of the rows, trained separately and combined; it changes the last digits of the model.  "
        "[default: 1 below 16 GB, then one for each 16 GB]",
        kind="int", metavar="L", least=1,
        solvers=("dcd", "newton", "newton-cg", "newton-ws", "hyperpass", "ssvm", "pegasos"),
    )  # fmt: skip
    """Nothing depends on how many workers or threads work on them."""
    rounds_per_pass: int | None = result(
        None, "--rounds-per-pass", "Sums over all shards in a pass.  [default: by the shape of the data]", kind="int",
        metavar="P", least=1, solvers=("dcd",),
    )  # fmt: skip
    sum_seconds: float | None = result(
        None, "--sum-seconds", "Seconds that a sum over all shards takes on your cluster; it sets the default of "
        "--rounds-per-pass.  [default: 0.02, plus the time of w at 10 Gb/s]",
        kind="float", metavar="S", positive=True, solvers=("dcd",),
    )  # fmt: skip
    # probabilities
    calibrate: str | None = result(
        None, "--calibrate",
        "Add class probabilities, fitted on rows held out of training: a sigmoid (also called platt) or an isotonic "
        "curve of the scores.", choices=("sigmoid", "platt", "isotonic"),
    )  # fmt: skip
    calibrate_share: float = result(
        0.2, "--calibrate-share", "Share of the rows held out for --calibrate, chosen by a hash of the row number.",
        kind="float", shown=None, positive=True,
    )  # fmt: skip
    # what it leaves behind
    no_dual: bool = files(
        False, "--no-dual", "Do not save alpha in the model; certify then gives only a weaker bound.", kind="flag"
    )
    # where it runs
    memory: str | int | None = result(
        None, "--memory",
        "Memory budget, on top of what the process needs without data.  [default: half of what the limit in force "
        "leaves]",
        kind="size or share", metavar="SIZE|PCT%", reading=True,
    )  # fmt: skip
    """Bytes, '2GiB' or '25%' of the memory limit in force; None: half of (limit - BASE_BYTES)."""
    scratch: str | None = place(
        None, "--scratch",
        "Folder for working copies and other temporary files.  [default: a folder of yours in the temporary folder]",
        metavar="DIR",
    )  # fmt: skip
    scratch_limit: str | int | None = place(
        None,
        "--scratch-limit",
        "Most bytes to use in the scratch folder.  [default: no limit]",
        kind="size",
        metavar="SIZE",
    )
    stage: Stage = result(
        "auto",
        "--stage",
        "none: make no working copy; read the store itself in every pass.",
        choices=get_args(Stage),
        shown=None,
    )
    """'none' streams the store in its own order, in which rows are neither shuffled nor renumbered."""
    threads: int | None = place(
        None,
        "--threads",
        "Number of threads.  [default: the cores this process may use]",
        kind="int",
        metavar="N",
        least=1,
        reading=True,
    )
    scheduler: str | None = place(
        None,
        "--scheduler",
        "Where tasks run: threads or processes of this machine, or the dask cluster at this address.  "
        "[default: threads]",
        metavar="threads|processes|ADDR",
        reading=True,
    )
    """None: threads here; 'serial', 'threads', 'processes', 'dask' (the client of this process), or an address."""
    scheduler_file: str | None = place(
        None,
        "--scheduler-file",
        "File of a running dask scheduler, instead of --scheduler ADDR.",
        metavar="FILE",
        reading=True,
    )
    workers: int | None = place(
        None,
        "--workers",
        "Number of worker processes that --scheduler processes starts, or that plan assumes.  "
        "[default: the cores this process may use]",
        kind="int",
        metavar="N",
        least=1,
        reading=True,
    )
    worker_scratch: str | None = place(
        None, "--worker-scratch",
        "Folder on each worker's own disk, where it keeps the rows that it has read.  [default: none, so it reads "
        "--scratch in every pass]",
        metavar="DIR",
    )  # fmt: skip
    """Without one workers read the working copy in every pass.  Tasks of this process do not use it."""
    # set by `fit_path` alone
    C_path: list[float] | None = result(None)
    """One set of models for each C, trained together; C is then their largest, which `auto` goes by."""


def _that_change(*what: str) -> tuple[str, ...]:
    return tuple(name for name, option in OPTIONS.items() if option.changes in what)


OPTIONS: dict[str, Option] = {f.name: f.metadata["option"] for f in dataclasses.fields(FitOptions)}
"""Field of FitConfig -> its Option, in the order of the help."""
DEFAULTS = {f.name: f.default for f in dataclasses.fields(FitOptions)}
"""Field of FitConfig -> its default; MISSING for the option whose default is an empty dict."""
TYPED = {option.name: name for name, option in OPTIONS.items() if option.flags}
"""Name of the flag -> field: c -> C, lambda -> lam, set -> solver_options."""
RESULT_OPTIONS = _that_change("result")
"""Options that change a model's coefficients, proof or problem."""
MODEL_OPTIONS = _that_change("result", "files")
"""Options that change the bytes of a model's directory."""
