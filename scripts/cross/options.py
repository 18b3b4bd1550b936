"""Random options of a fit: every solver with each loss, bias and kernel that it has.  Nothing of bigsvm."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

LINEAR: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "auto": (("hinge", "squared_hinge"), ("augmented", "none", "free")),
    "dcd": (("hinge", "squared_hinge"), ("augmented", "none")),
    "pcd": (("squared_hinge",), ("augmented", "none", "free")),
    "cd": (("squared_hinge",), ("augmented", "none", "free")),
    "rosenbrock": (("squared_hinge",), ("augmented", "none", "free")),
    "newton": (("squared_hinge",), ("augmented", "none", "free")),
    "newton-cg": (("squared_hinge",), ("augmented", "none", "free")),
    "newton-ws": (("hinge", "squared_hinge"), ("augmented", "none", "free")),
    "ssvm": (("squared_hinge",), ("augmented", "none")),
    "hyperpass": (("hinge",), ("augmented", "none", "free")),
    "hyperpass-shrink": (("hinge",), ("augmented", "none")),
    "pegasos": (("hinge",), ("augmented", "none")),
}
"""Losses and biases of the linear solvers."""
LINEAR_REGRESSION: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "auto": (("epsilon_insensitive", "squared_epsilon_insensitive"), ("augmented", "none", "free")),
    "dcd": (("epsilon_insensitive", "squared_epsilon_insensitive"), ("augmented", "none")),
    "pcd": (("squared_epsilon_insensitive",), ("augmented", "none", "free")),
    "newton": (("squared_epsilon_insensitive",), ("augmented", "none", "free")),
    "newton-cg": (("squared_epsilon_insensitive",), ("augmented", "none", "free")),
    "interior-point": (("epsilon_insensitive",), ("augmented", "none", "free")),
}
"""Of targets."""
KERNELLED = {
    "smo": ("hinge", "epsilon_insensitive"), "rosen": ("hinge", "epsilon_insensitive"),
    "rosen-block": ("hinge", "epsilon_insensitive"), "simplified-smo": ("hinge",), "simplified-smo-km": ("hinge",),
    "platt-smo": ("hinge",), "auto": ("hinge", "epsilon_insensitive"),
}  # fmt: skip
"""Losses of the kernel solvers, whose bias is free."""
_OFTEN = {"auto": 4.0, "dcd": 4.0, "pcd": 2.0, "newton": 3.0, "newton-cg": 3.0, "newton-ws": 4.0, "hyperpass": 2.0}
"""How much more often than the others a linear solver is drawn."""
SLOW = ("pegasos", "rosenbrock", "cd", "pcd", "ssvm", "hyperpass", "hyperpass-shrink")
PAPER = ("rosenbrock", "newton", "ssvm", "hyperpass", "hyperpass-shrink", "pegasos", *KERNELLED)
KERNELS = ("linear", "rbf", "poly", "sigmoid")
WSS = ("1", "2", "3", "keerthi2", "wr", "wr+3")
NU = ("nu_svc", "one_class", "nu_svr")
IN_SHARDS = ("dcd", "newton", "newton-cg", "newton-ws")
TOGETHER = "crammer-singer"
STARTS = ("auto", "dcd", "pcd", "cd", "newton", "newton-cg", "newton-ws", "ssvm", *KERNELLED)
"""Solvers that start from an earlier model."""


@dataclass
class Options:
    """What a fit is asked for, but for its columns; `kernel` has its parameters resolved."""

    solver: str
    loss: str
    bias: str
    C: float
    tol: float
    kernel: dict[str, Any] = field(default_factory=lambda: {"name": "linear"})
    lam: bool = False
    B: float = 1.0
    epsilon: float = 0.1
    multi_class: str = ""
    stop: str = "gap"
    max_passes: float | None = None
    seed: int = 0
    threads: int = 1
    wss: str = ""
    working_set: int | None = None
    shrinking: bool = True
    no_dual: bool = False
    shards: int = 1
    nu: float | None = None
    gamma_auto: bool = False
    assume_psd: bool = False

    @property
    def regression(self) -> bool:
        return self.loss in ("epsilon_insensitive", "squared_epsilon_insensitive", "nu_svr")

    @property
    def of_kernel(self) -> bool:
        """Whether its solver is one of kernels."""
        return self.kernel["name"] != "linear" or (self.solver in KERNELLED and self.solver != "auto")

    @property
    def has_cost(self) -> bool:
        """Whether there is a C: nu is in its place with classes."""
        return self.loss not in ("nu_svc", "one_class")

    @property
    def together(self) -> bool:
        """Whether one loss is of all classes: Crammer and Singer's."""
        return self.multi_class == TOGETHER

    @property
    def pairs(self) -> bool:
        """Whether several classes are told apart pair by pair."""
        return self.multi_class == "ovo" or (not self.multi_class and self.of_kernel)


def make_options(
    rng: np.random.Generator, regression: bool, kernel: str, X: np.ndarray, like: Options | None
) -> Options:
    """Options that go together; `like` gives those of an earlier fit with little or nothing changed."""
    if like is not None and like.regression == regression:
        changed = rng.choice(["", "C", "seed", "tol"], p=[0.7, 0.1, 0.1, 0.1])
        if changed == "C":
            return replace(like, C=like.C * 3, nu=like.nu and like.nu / 2)
        return replace(like, seed=like.seed + 1) if changed == "seed" else replace(like, tol=like.tol * 2)
    found = _with_kernel(rng, regression, kernel, X) if kernel or regression or rng.random() < 0.45 else _linear(rng)
    own = rng.spawn(1)[0]  # an option that is added leaves the cases of all seeds without it as they were
    if regression and not kernel and own.random() < 0.6:
        found = _linear_regression(own, found.epsilon)
    found.C, found.lam = float(10.0 ** rng.uniform(-3, 2.5)), bool(rng.random() < 0.1)
    if rng.random() < 0.05:
        found.C = float(10.0 ** rng.choice([-8, 6]))
    found.seed, found.threads = int(rng.integers(0, 5)), int(rng.choice([1, 2], p=[0.85, 0.15]))
    found.B = float(rng.choice([1.0, 10.0, 0.1], p=[0.8, 0.1, 0.1]))
    if rng.random() < (0.6 if found.solver in SLOW else 0.15):
        found.max_passes = float(rng.choice([1, 5, 50, 300]))
    without = found.solver == "auto" and found.loss == "epsilon_insensitive" and not found.of_kernel  # dcd's
    if found.solver in PAPER and rng.random() < 0.1 and not without:
        found.stop = "paper"
    if found.solver == "dcd" and found.shards == 1 and own.random() < 0.1:
        found.stop = "paper"
    found.no_dual = bool(rng.random() < 0.04)
    return _with_more(found, own.spawn(1)[0])


def _with_more(found: Options, rng: np.random.Generator) -> Options:
    """Some in the place of what was drawn: what nu shapes, shards of Newton's methods, what makes `auto` hand over."""
    kernel = found.kernel["name"]
    definite = kernel in ("linear", "rbf") or (kernel == "poly" and found.kernel["coef0"] >= 0)
    if found.of_kernel and definite and rng.random() < 0.3:
        losses = ("nu_svr",) if found.regression else ("nu_svc", "nu_svc", "one_class")
        found.loss, found.nu = str(rng.choice(losses)), float(rng.choice([0.02, 0.1, 0.3, 0.5, 0.8, 1.0]))
        found.solver = "auto" if found.solver == "auto" and kernel != "linear" else "smo"
        found.bias, found.assume_psd = "free", False
        found.wss, found.working_set = str(rng.choice(["", "1", "2"])), [None, None, 10][int(rng.integers(3))]
        if found.loss != "nu_svr":
            found.lam = False
        if found.loss == "one_class":
            found.multi_class = ""
    elif found.solver in IN_SHARDS and found.shards == 1 and found.stop == "gap" and rng.random() < 0.2:
        found.shards = int(rng.integers(2, 6))
    elif found.solver == "auto" and not found.of_kernel and rng.random() < 0.15:
        loss, C = "epsilon_insensitive" if found.regression else "hinge", float(10.0 ** rng.uniform(1, 4))
        found = replace(found, loss=loss, bias=str(rng.choice(["augmented", "none"])), C=C, stop="gap")
    return found


def together(rng: np.random.Generator) -> Options:
    """Of one loss of all classes."""
    tol = float(rng.choice([1e-1, 1e-2, 1e-3, 1e-3, 1e-5]))
    found = Options("", "hinge", str(rng.choice(["augmented", "none"])), float(10.0 ** rng.uniform(-3, 2)), tol)
    found.solver, found.multi_class = str(rng.choice(["auto", "dcd"])), TOGETHER
    found.lam, found.no_dual = bool(rng.random() < 0.1), bool(rng.random() < 0.1)
    found.seed, found.threads = int(rng.integers(0, 5)), int(rng.choice([1, 2], p=[0.85, 0.15]))
    found.B = float(rng.choice([1.0, 10.0, 0.1], p=[0.8, 0.1, 0.1]))
    if rng.random() < 0.2:
        found.max_passes = float(rng.choice([1, 5, 50, 300]))
    return found


def warm(like: Options, rng: np.random.Generator) -> Options:
    """Of a fit that starts from the model of an earlier one: C, tolerance and solver may differ."""
    solver = like.solver if like.solver in STARTS else "auto"
    if rng.random() < 0.3 and (like.kernel["name"] != "linear" or not like.of_kernel):
        solver = "auto"
    if solver == "auto" and like.bias == "free" and like.loss == "epsilon_insensitive":
        solver = "smo"  # which `auto` takes, because `interior-point` starts from 0
    more = {"wss": "", "working_set": None} if solver != like.solver else {}
    stop = "gap" if solver != like.solver else like.stop
    C = like.C * float(rng.choice([1.0, 3.0, 0.3]))
    return replace(like, solver=solver, C=C, tol=like.tol / float(rng.choice([1.0, 2.0])), stop=stop, **more)


def _linear(rng: np.random.Generator) -> Options:
    shares = np.array([_OFTEN.get(name, 1.0) for name in LINEAR])
    solver = str(rng.choice(list(LINEAR), p=shares / shares.sum()))
    losses, biases = LINEAR[solver]
    tol = float(rng.choice([1e-1, 1e-2, 1e-3] if solver in SLOW else [1e-2, 1e-3, 1e-3, 1e-5, 1e-7]))
    found = Options(solver, str(rng.choice(losses)), str(rng.choice(biases)), 1.0, tol)
    if solver == "dcd" and rng.random() < 0.15:
        found.shards = int(rng.integers(2, 6))
    if rng.random() < 0.2:
        found.multi_class = "ovr"
    return found


def _linear_regression(rng: np.random.Generator, epsilon: float) -> Options:
    solver = str(rng.choice(list(LINEAR_REGRESSION)))
    losses, biases = LINEAR_REGRESSION[solver]
    tol = float(rng.choice([1e-1, 1e-2, 1e-3] if solver in SLOW else [1e-2, 1e-3, 1e-3, 1e-5, 1e-7]))
    found = Options(solver, str(rng.choice(losses)), str(rng.choice(biases)), 1.0, tol, epsilon=epsilon)
    if solver == "dcd" and rng.random() < 0.15:
        found.shards = int(rng.integers(2, 6))
    return found


def _with_kernel(rng: np.random.Generator, regression: bool, kernel: str, X: np.ndarray) -> Options:
    loss = "epsilon_insensitive" if regression else "hinge"
    able = [name for name, losses in KERNELLED.items() if loss in losses]
    solver = "smo" if rng.random() < 0.4 else str(rng.choice(able))
    named = kernel or str(rng.choice(KERNELS, p=[0.2, 0.45, 0.2, 0.15]))
    found = Options(solver, loss, "free", 1.0, float(rng.choice([1e-2, 1e-3, 1e-3, 1e-5, 1e-6])))
    if named == "linear" and solver == "auto":
        found.solver = solver = "smo"
    found.kernel = {"name": named}
    if named in ("rbf", "poly", "sigmoid"):
        found.gamma_auto = bool(rng.random() < 0.3)
        with np.errstate(over="ignore"):
            size = max(float((X.astype(np.float64) ** 2).sum(axis=1).mean()), 1e-6)
            variance = max(float(X.astype(np.float64).var()), 1e-9)
        scales = [1.0 / X.shape[1], 1.0 / X.shape[1], 1.0 / (variance * X.shape[1]),
                  1.0 / size]  # fmt: skip
        gamma = float(rng.choice(scales)) * 10.0 ** rng.uniform(-1.5, 1)
        found.kernel["gamma"] = 1.0 / X.shape[1] if found.gamma_auto else float(np.clip(gamma, 1e-100, 1e100))
    if named == "poly":
        found.kernel["degree"] = int(rng.choice([1, 2, 3, 5]))
    if named in ("poly", "sigmoid"):
        found.kernel["coef0"] = float(rng.choice([0.0, 1.0, -1.0, 0.3]))
    if solver == "smo":
        found.wss = str(rng.choice(WSS, p=[0.1, 0.4, 0.1, 0.1, 0.15, 0.15]))
        found.working_set = [None, None, None, 2, 10][int(rng.integers(5))]
        found.shrinking = bool(rng.random() < 0.8)
    if not regression and rng.random() < 0.4:
        found.multi_class = str(rng.choice(["ovr", "ovo"]))
    found.epsilon = float(rng.choice([0.0, 0.1, 1.0, 10.0], p=[0.1, 0.6, 0.2, 0.1]))
    # From a stream of its own: an option that is added leaves the cases of all seeds as they were.
    found.assume_psd = bool(named not in ("linear", "rbf") and rng.spawn(1)[0].random() < 0.08)
    return found


def class_weight(rng: np.random.Generator, classes: np.ndarray) -> Any:
    """None, 'balanced', or a weight for some classes by name."""
    kind = rng.choice(["none", "balanced", "given"], p=[0.7, 0.15, 0.15])
    if kind != "given" or any("," in str(name) for name in classes):
        return "balanced" if kind == "balanced" else None
    some = classes[rng.random(len(classes)) < 0.6].tolist()
    return {name: float(rng.choice([0.5, 3.0, 20.0, 0.01])) for name in some} or None


def arguments(options: Options) -> dict[str, Any]:
    """The options by the names of `bigsvm.fit`; those of the command line follow (`flags`)."""
    found: dict[str, Any] = {
        "solver": options.solver, "loss": options.loss, "bias": options.bias, "tol": options.tol, "seed": options.seed,
        "threads": options.threads, "kernel": options.kernel["name"], "epsilon": options.epsilon,
        "multi_class": options.multi_class or None, "stop": options.stop, "max_passes": options.max_passes,
        "wss": options.wss or None, "working_set": options.working_set, "no_dual": options.no_dual or None,
        "bias_scale": options.B,
    }  # fmt: skip
    for name in ("degree", "coef0"):
        found[name] = options.kernel.get(name)
    if not options.gamma_auto:
        found["gamma"] = options.kernel.get("gamma")
    if not options.shrinking:
        found["shrinking"] = False
    if options.assume_psd:
        found["assume_psd"] = True
    if options.shards > 1:
        found["shards"] = options.shards
    if options.nu is not None:
        found["nu"] = options.nu
        del found["epsilon"]
    return {name: value for name, value in found.items() if value is not None}
