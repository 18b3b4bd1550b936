"""What a fit was asked to do: one frozen record, validated once, shared by the command line and Python."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from bigsvm.errors import UsageError
from bigsvm.option import Option, files, place, result
from bigsvm.units import MIB, parse_bytes, parse_seconds

Bias = Literal["augmented", "free", "none"]
Stop = Literal["gap", "paper"]
MultiClass = Literal["ovr", "ovo", "crammer-singer"]
WSS = Literal["1", "2", "3", "keerthi2", "wr", "wr+3"]
Stage = Literal["auto", "none"]
NU_LOSSES = ("nu_svc", "nu_svr", "one_class")
"""Losses whose margin, or epsilon, is set by nu: kernel problems, also where the kernel is linear."""
JOINT_RULE, JOINT_LOSS = "crammer-singer", "crammer_singer"
"""How classes are told apart by one loss of all of them, and that loss: each stands for the other."""
LOSSES = ("hinge", "squared_hinge", "epsilon_insensitive", "squared_epsilon_insensitive", JOINT_LOSS, *NU_LOSSES)
KERNELS = ("linear", "rbf", "poly", "sigmoid", "precomputed")


class SolverEntry(NamedTuple):
    """What is known of a solver before it is imported.

    where : its class, below `bigsvm.solvers`
    of_kernel : it solves the dual, and sees the rows through a kernel only: hinge and a free bias are its defaults
    bias_in_paper : its paper has a bias; if not, `none` is the default under --stop paper
    """

    where: str
    of_kernel: bool = False
    bias_in_paper: bool = True


SOLVER_TABLE = {
    "dcd": SolverEntry("dcd.dual_cd.DualCD"),
    "newton": SolverEntry("primal.newton.Newton"),
    "newton-cg": SolverEntry("primal.newton_cg.NewtonCG"),
    "newton-ws": SolverEntry("newton_ws.newton_ws.NewtonWS"),
    "ssvm": SolverEntry("literature.ssvm.SSVM"),
    "pcd": SolverEntry("coordinate.primal_cd.PrimalCD"),
    "cd": SolverEntry("coordinate.coordinate_descent.CoordinateDescent"),
    "rosenbrock": SolverEntry("literature.rosenbrock.Rosenbrock"),
    "pegasos": SolverEntry("literature.pegasos.Pegasos", bias_in_paper=False),
    "hyperpass": SolverEntry("hyperpass.hyperpass.HyperPass", bias_in_paper=False),
    "hyperpass-shrink": SolverEntry("hyperpass.hyperpass_shrink.HyperPassShrink", bias_in_paper=False),
    "smo": SolverEntry("kernel.smo.smo.Smo", of_kernel=True),
    "rosen": SolverEntry("kernel.rosen.rosen.Rosen", of_kernel=True),
    "rosen-block": SolverEntry("kernel.rosen.rosen_block.RosenBlock", of_kernel=True),
    "simplified-smo": SolverEntry("kernel.literature.simplified.SimplifiedSMO", of_kernel=True),
    "simplified-smo-km": SolverEntry("kernel.literature.simplified.SimplifiedSMOWithKM", of_kernel=True),
    "platt-smo": SolverEntry("kernel.literature.platt.PlattSMO", of_kernel=True),
}
"""All solvers by name.  If several can solve a problem, the first is preferred."""
KERNEL_SOLVERS = tuple(name for name, solver in SOLVER_TABLE.items() if solver.of_kernel)
_NO_BIAS_IN_PAPER = tuple(name for name, solver in SOLVER_TABLE.items() if not solver.bias_in_paper)
BASE_BYTES = 256 * MIB
"""The most that a process is taken to hold beside its budget: interpreter, libraries and compiled code."""


@dataclass(frozen=True)
class FitConfig:
    """Options of a fit, in the order of their help.  The command line, configuration files, records of runs, identities
    and solvers are all made from this one table.

    Raises UsageError (on creation) for a value that no solver could use.
    """

    # the problem
    solver: str = result(
        "auto", "-s --solver", "Name of the solver; auto chooses by loss, bias, shape and memory.", shown=None
    )
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
        None, "--class-weight", "Multiplies C for the rows of a class.", kind="class weight",
        metavar="balanced|LABEL=WEIGHT,...",
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
        dict, "--set", "A parameter of the solver; repeatable.", kind="settings", metavar="KEY=VALUE"
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
        None, "--max-passes", "Stop after this many passes over the data.", kind="float", metavar="N", positive=True
    )
    max_time: float | None = place(
        None, "--max-time", "Stop after this time: 90s, 15m, 2h.", kind="duration", metavar="DURATION", positive=True
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
        None, "--scratch-limit", "Most bytes to use in the scratch folder.", kind="size", metavar="SIZE"
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
        None, "--scheduler-file", "File of a running dask scheduler.", metavar="FILE", reading=True
    )
    workers: int | None = place(
        None, "--workers", "Number of worker processes.", kind="int", metavar="N", least=1, reading=True
    )
    worker_scratch: str | None = place(
        None, "--worker-scratch", "Folder on each worker's own disk, where it keeps the rows that it has read.",
        metavar="DIR",
    )  # fmt: skip
    """Without one workers read the working copy in every pass.  Tasks of this process do not use it."""
    # set by `fit_path` alone
    C_path: list[float] | None = result(None)
    """One set of models for each C, trained together; C is then their largest, which `auto` goes by."""

    def __post_init__(self) -> None:
        for name, option in OPTIONS.items():
            value = getattr(self, name)
            if value is None and _DEFAULTS[name] is None:
                continue
            if getattr(value, "ndim", None) == 0:  # a NumPy scalar, which JSON records could not hold
                value = value.item()
                object.__setattr__(self, name, value)
            if option.choices and value not in option.choices:
                raise UsageError(f"unknown {name} {value!r}", hint=f"one of {', '.join(option.choices)}")
            if option.flags and (wanted := option.wanted(value)):
                raise UsageError(f"{name} must be {wanted}, not {value!r}")
            if option.positive and not (isinstance(value, int | float) and 0 < value < float("inf")):
                # In LIBLINEAR, -B -1 trains without a bias.
                hint = "to train without a bias, use --bias none (bias='none')" if name == "bias_scale" else ""
                raise UsageError(f"{name} must be a positive number, not {value!r}", hint=hint)
            if option.least is not None and value < option.least:
                raise UsageError(f"{name} must be at least {option.least}, not {value!r}")
        number = isinstance(self.gamma, int | float) and 0 < self.gamma < float("inf")
        if self.gamma not in ("auto", "scale") and not number:
            raise UsageError(f"gamma must be auto, scale or a positive number, not {self.gamma!r}")
        if not (isinstance(self.epsilon, int | float) and 0 <= self.epsilon < float("inf")):
            raise UsageError(f"epsilon must be a number and not negative, not {self.epsilon!r}")
        for value in self.C_path or ():
            if not 0 < value < float("inf"):
                raise UsageError(f"every C must be a positive number, not {value!r}")
        if self.multi_class is not None and (self.regression or self.loss == "one_class"):
            fits = "targets" if self.regression else "rows of one class"
            raise UsageError(f"multi_class is for classes, and the loss {self.loss} fits {fits}", hint="leave it out")
        if self.lam is not None and self.C_path is None and self.C != 1.0:
            raise UsageError("C and lam exclude each other", hint="C = 1 / (lam n_samples)")
        self._check_joint()
        self._check_nu()
        if self.calibrate == "platt":
            object.__setattr__(self, "calibrate", "sigmoid")
        if self.calibrate is not None and (self.regression or self.loss == "one_class"):
            what = "a regression" if self.regression else "one_class"
            raise UsageError(f"probabilities are of classes, and {what} has none", hint="leave calibrate out")
        if not self.calibrate_share < 1:
            raise UsageError(f"calibrate_share must be below 1, not {self.calibrate_share!r}")
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"seed must be between 0 and 2^63 - 1, got {self.seed}")

    @property
    def regression(self) -> bool:
        """Whether the loss fits targets instead of classes."""
        return self.loss.endswith("epsilon_insensitive") or self.loss == "nu_svr"

    def _check_joint(self) -> None:
        """Raise UsageError for options that exclude Crammer and Singer's loss."""
        if (self.multi_class == JOINT_RULE) != (self.loss == JOINT_LOSS):
            raise UsageError(
                f"multi_class {self.multi_class!r} and loss {self.loss!r} exclude each other: "
                f"Crammer and Singer's loss is {JOINT_LOSS!r}",
                hint=f"say multi_class {JOINT_RULE!r} and leave loss out",
            )
        if self.loss != JOINT_LOSS:
            return
        for wrong, what, hint in (
            (
                self.of_kernel,
                "is for linear models, without a kernel or kernel solvers",
                "leave --kernel and --solver out, or use --multi-class ovo",
            ),
            (self.bias == "free", "has no free bias", "use --bias augmented or none"),
            (self.shards is not None and self.shards > 1, "is not trained on several shards", "use --shards 1"),
            (self.C_path is not None, "is not trained for several C at one time", "fit each C"),
        ):
            if wrong:
                raise UsageError(f"Crammer and Singer's loss {what}", hint=hint)

    def _check_nu(self) -> None:
        """Raise UsageError for a bad nu, and for options that exclude the losses with nu."""
        if self.nu > 1.0:
            raise UsageError(f"nu must be at most 1, not {self.nu!r}", hint="it is a share of the rows, such as 0.1")
        if self.loss not in NU_LOSSES:
            return
        if self.bias != "free":
            raise UsageError(f"the loss {self.loss} has a free bias, not {self.bias!r}", hint="leave bias out")
        if self.C_path is not None or (self.loss != "nu_svr" and (self.C != 1.0 or self.lam is not None)):
            raise UsageError(f"the loss {self.loss} has no cost C", hint="set nu instead; in a search use --Cs 1")
        if self.warm_start is not None:
            raise UsageError(f"the loss {self.loss} cannot start from an earlier model", hint="leave warm_start out")
        indefinite = self.kernel == "sigmoid" or (self.kernel == "poly" and self.coef0 < 0)
        if self.loss != "nu_svr" and indefinite and not self.assume_psd:
            what = f"the loss {self.loss} needs a positive semidefinite kernel, which {self.kernel} is not in general"
            raise UsageError(what, hint="vouch for it with assume_psd, or choose rbf")
        if self.working_set == 2 or self.wss in ("keerthi2", "wr", "wr+3"):
            refused = "working_set=2" if self.working_set == 2 else f"wss={self.wss}"
            raise UsageError(
                f"the loss {self.loss} does not support {refused}",
                hint="leave working_set and wss out, or use wss 1 or 2",
            )

    @classmethod
    def of(cls, **options: Any) -> FitConfig:
        """A config from keyword options as a user writes them.

        Sets defaults that depend on other options.  Raises UsageError for an unknown name; suggests the nearest one.
        """
        known = {name for name, option in OPTIONS.items() if option.flags}
        # The record of a run has every field, also those without a flag, as None.
        recorded = OPTIONS.keys() - known
        options = {name: value for name, value in options.items() if name not in recorded or value is not None}
        unknown = sorted(set(options) - known)
        if unknown:
            raise UsageError(f"unknown option {unknown[0]!r}", hint=_nearest(unknown[0], known))
        if isinstance(options.get("warm_start"), str | os.PathLike):  # the run may be resumed from another folder
            options["warm_start"] = os.path.abspath(options["warm_start"])
        if isinstance(options.get("max_time"), str):
            options["max_time"] = parse_seconds(options["max_time"])
        if isinstance(options.get("wss"), int):
            options["wss"] = str(options["wss"])
        if options.get("stop") == "paper" and options.get("solver") in _NO_BIAS_IN_PAPER:
            options.setdefault("bias", "none")
        if options.get("loss") in NU_LOSSES:
            options.setdefault("bias", "free")
            options["solver"] = "smo" if options.get("solver", "auto") == "auto" else options["solver"]
        if options.get("multi_class") == JOINT_RULE and options.get("loss", "hinge") == "hinge":
            options["loss"] = JOINT_LOSS
        elif options.get("loss") == JOINT_LOSS:
            options.setdefault("multi_class", JOINT_RULE)
        if options.get("kernel", "linear") != "linear" or options.get("solver") in KERNEL_SOLVERS:
            options.setdefault("bias", "free")
            options.setdefault("loss", "hinge")
        return cls(**options)

    @property
    def of_kernel(self) -> bool:
        """Whether a kernel solver is needed."""
        return self.kernel != "linear" or self.solver in KERNEL_SOLVERS

    def costs(self, n_samples: int) -> list[float]:
        """The values of C: one, computed from lambda if that was given; several for `C_path`."""
        if self.C_path is not None:
            return self.C_path
        return [1.0 / (self.lam * n_samples) if self.lam is not None else self.C]

    def memory_bytes(self, limit_in_force: int) -> int:
        """The memory budget in bytes: as asked for, else half of (limit_in_force - BASE_BYTES)."""
        if self.memory is None:
            return max((limit_in_force - BASE_BYTES) // 2, 16 * MIB)
        return parse_bytes(self.memory, total=limit_in_force)

    def cache_bytes(self, budget: int) -> int | None:
        """Bytes of memory for kernel rows; None: what the budget leaves."""
        return None if self.cache_memory is None else parse_bytes(self.cache_memory, total=budget)

    def scratch_limit_bytes(self) -> int | None:
        """Bytes that working copies and per-row state may take on disk; None: no limit."""
        return None if self.scratch_limit is None else parse_bytes(self.scratch_limit)


CALLED_ELSEWHERE = {
    "lambda": "lam",
    "alpha": "lam",
    "max_iter": "max_passes",
    "n_iter": "max_passes",
    "random_state": "seed",
    "n_jobs": "threads",
    "fit_intercept": "bias",
    "intercept_scaling": "bias_scale",
    "decision_function_shape": "multi_class",
    "cache_size": "cache_memory",
    "eps": "tol",
}
"""Name of an option in another program -> our field."""


def _nearest(name: str, known: set[str]) -> str:
    """The hint for an unknown option: the one that was probably meant, else all of them."""
    by_lower = {option.lower(): option for option in known}
    low = name.lower().strip("_").replace("-", "_")
    meant = CALLED_ELSEWHERE.get(low) or by_lower.get(low)
    if meant is None:
        import difflib  # here, to keep imports of programs that only predict light

        near = difflib.get_close_matches(low, by_lower, n=1, cutoff=0.6)
        meant = by_lower[near[0]] if near else None
    return f"did you mean {meant}?" if meant else f"known: {', '.join(sorted(known))}"


def _that_change(*what: str) -> tuple[str, ...]:
    return tuple(name for name, option in OPTIONS.items() if option.changes in what)


OPTIONS: dict[str, Option] = {f.name: f.metadata["option"] for f in dataclasses.fields(FitConfig)}
"""Field of FitConfig -> its Option, in the order of the help."""
TYPED = {option.name: name for name, option in OPTIONS.items() if option.flags}
"""Name of the flag -> field: c -> C, lambda -> lam, set -> solver_options."""
RESULT_OPTIONS = _that_change("result")
"""Options that change a model's coefficients, proof or problem."""
MODEL_OPTIONS = _that_change("result", "files")
"""Options that change the bytes of a model's directory."""
_DEFAULTS = {f.name: f.default for f in dataclasses.fields(FitConfig)}
