"""A random case: rows in a format, and one or more fits of them.  A seed determines all of it; nothing of bigsvm."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cross.labels import draw_names, renamed
from cross.options import Options, class_weight, make_options, together, warm
from cross.rows import make_columns, make_rows, make_weights

MUST = "must be refused"
MAY = "may be refused"
FORMS = ("arrays", "zarr3", "zarr2", "lists", "spark", "columns", "fixed", "text")
_TOGETHER = 16  # the key of draws of one loss of all classes
SPARSE_FORMS, DENSE_FORMS = ("lists", "spark", "text"), ("columns", "fixed")


@dataclass
class Step:
    """One fit: the columns that it is of, its options, and what is known of it before.

    refusal : '', MUST or MAY (exit 65);  why : in words
    label_map, positive : other names of labels, and the one against all others (`cross.labels`)
    warm : it starts from the model of the first step
    """

    label: str
    weight: str | None
    options: Options
    class_weight: Any = None
    refusal: str = ""
    why: str = ""
    label_map: dict[str, str] | None = None
    positive: str | None = None
    warm: bool = False


@dataclass
class Case:
    """Rows X as they are given (any dtype), stored dense or CSR, and the steps that share store and scratch.

    labels : what each row is called, by column;  targets : of regression, by column
    stream : 'resident' | 'least' (the least memory of the plan) | 'blocks' (tiny blocks, many of them) | 'unstaged'
    fault : what is wrong with the data, '' for nothing: 'twice', 'nan', 'negative weight', 'masked', 'sizes'
    """

    seed: int
    X: np.ndarray
    sparse: bool
    form: str
    stream: str
    labels: dict[str, np.ndarray]
    targets: dict[str, np.ndarray]
    weights: dict[str, np.ndarray]
    steps: list[Step]
    chunk: int
    codec: str
    categorical: bool
    explicit_zeros: bool
    fault: str = ""
    named: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        layout = "csr" if self.sparse else "dense"
        shape = f"{self.X.shape[0]} x {self.X.shape[1]} {self.X.dtype} {layout}"
        return f"{shape}, {', '.join(self.named)}, {self.form}, {self.stream}" + (f", {self.fault}" * bool(self.fault))


def make_case(seed: int) -> Case:
    """The case of a seed."""
    rng = np.random.default_rng(seed)
    X, named = make_rows(rng)
    sparse, form = bool(rng.random() < 0.5), str(rng.choice(FORMS, p=[0.3, 0.25, 0.1, 0.1, 0.05, 0.07, 0.05, 0.08]))
    sparse = (sparse or form in SPARSE_FORMS) and form not in DENSE_FORMS
    columns = make_columns(X, rng)
    weights = {"w": make_weights(len(X), rng)} if rng.random() < 0.4 else {}
    precomputed = rng.random() < 0.07
    if precomputed:
        X, what = _precomputed(X, rng)
        named.append(what)
    X = _typed(X, rng, form, precomputed)
    if form == "lists" and not np.any(X[:, -1]):  # lists of entries do not say how many features there are
        X[-1 if precomputed else 0, -1] = 1  # a matrix of a kernel stays symmetric
    labels = {name: _called(codes, rng, form) for name, codes in columns.labels.items()}
    stream = str(rng.choice(["resident", "least", "blocks", "unstaged"], p=[0.5, 0.2, 0.22, 0.08]))
    case = Case(
        seed=seed, X=X, sparse=sparse, form=form, stream=stream, labels=labels, targets=columns.targets,
        weights=weights, steps=[], chunk=int(rng.choice([7, 16, 50, 1000])), categorical=bool(rng.random() < 0.5),
        codec=str(rng.choice(["none", "zstd"])), explicit_zeros=bool(rng.random() < 0.2), named=named,
    )  # fmt: skip
    if rng.random() < 0.06:
        case.fault = _fault(case, rng)
    n_steps = 1 if stream == "resident" or rng.random() < 0.6 else int(rng.integers(2, 4))
    first: Options | None = None
    for _ in range(n_steps):
        case.steps.append(_step(case, rng, "precomputed" if precomputed else "", first))
        first = first or case.steps[0].options
    _start_again(case, rng.spawn(1)[0])
    if not precomputed:
        _together(case, np.random.default_rng([seed, _TOGETHER]))
    return case


def _together(case: Case, rng: np.random.Generator) -> None:
    """Sometimes one more fit, of one loss of all classes: from a key of its own, which changes nothing before it."""
    if rng.random() >= 0.15:
        return
    names = ["label"] if case.form == "text" else ["label", "other"]
    name = max(names, key=lambda name: len(np.unique(case.labels[name])))
    weight = "w" if case.weights and case.form != "text" and rng.random() < 0.4 else None
    step = Step(name, weight, together(rng))
    step.class_weight = class_weight(rng, np.unique(case.labels[name]))
    _foresee(case, step)
    case.steps.append(step)


def _start_again(case: Case, rng: np.random.Generator) -> None:
    """Sometimes one more fit, of the first one's columns and model."""
    first = case.steps[0]
    options = first.options
    known = not (first.refusal or case.fault or options.no_dual or options.nu or options.shards > 1)
    if rng.random() < 0.15 and known:
        step = replace(first, options=warm(options, rng), warm=True)
        _foresee(case, step)
        case.steps.append(step)


def _step(case: Case, rng: np.random.Generator, kernel: str, like: Options | None) -> Step:
    """A fit of some columns; later steps often differ from the first in their columns alone."""
    regression = bool(rng.random() < (0.12 if case.form == "arrays" else 0.1)) and case.form != "text"
    options = make_options(rng, regression, kernel, case.X, like if rng.random() < 0.7 else None)
    name = str(rng.choice(["label", "other"])) if case.form != "text" else "label"
    weight = "w" if case.weights and case.form != "text" and rng.random() < 0.6 else None
    step = Step(("target_" if options.regression else "") + name, weight, options)
    if not options.regression:
        step.class_weight = class_weight(rng, np.unique(case.labels[name]))
        if options.loss == "one_class":
            step.class_weight = None
        else:
            _rename(case, step, rng.spawn(1)[0])
    _foresee(case, step)
    return step


def _rename(case: Case, step: Step, rng: np.random.Generator) -> None:
    """Sometimes other names of labels, or one of them against all others; weights of classes go by the new names."""
    if rng.random() < 0.2:
        step.label_map, step.positive = draw_names(case.labels[step.label], rng)
    if isinstance(step.class_weight, dict) and (step.label_map or step.positive is not None):
        names = np.unique(renamed(case.labels[step.label], step.label_map, step.positive)).tolist()
        plain = step.positive is None and not any("," in str(name) for name in names)
        step.class_weight = {names[0]: 3.0} if plain else None


def _foresee(case: Case, step: Step) -> None:
    """What the contract says of this fit before it is run."""
    if case.fault and (case.fault != "negative weight" or step.weight):
        step.refusal, step.why = MUST, case.fault
        return
    cost = np.ones(len(case.X)) if step.weight is None else case.weights[step.weight]
    if not step.options.regression:
        names = renamed(case.labels[step.label], step.label_map, step.positive)
        if isinstance(step.class_weight, dict):
            cost = cost * np.array([step.class_weight.get(name, 1.0) for name in names.tolist()])
        if len(np.unique(names[cost > 0])) < (1 if step.options.loss == "one_class" else 2):
            step.refusal, step.why = MUST, "one class takes part"
            return
        if names.dtype.kind in "iu" and np.abs(names.astype(object)).max() > 2**53:
            step.refusal, step.why = MAY, "labels beyond 2^53"
    elif not np.any(cost > 0):
        step.refusal, step.why = MAY, "no row takes part"
    if "extreme" in case.named or np.abs(case.X.astype(np.float64)).max() > 1e15:
        step.refusal, step.why = MAY, "values of extreme size"
    if step.options.kernel.get("name") == "poly" and _poly_overflows(case, step.options.kernel):
        step.refusal, step.why = MAY, "kernel values of extreme size"
    if "asymmetric kernel" in case.named and step.options.kernel["name"] == "precomputed":
        step.refusal, step.why = MAY, "asymmetric kernel"
    if case.X.dtype.kind in "iu" and case.X.dtype.itemsize > 2 and np.abs(case.X.astype(object)).max() > 2**24:
        step.refusal, step.why = MAY, "integers beyond 2^24"


def _poly_overflows(case: Case, kernel: dict[str, Any]) -> bool:
    largest = (case.X.astype(np.float64) ** 2).sum(axis=1).max()
    return bool(kernel["degree"] * np.log10(max(kernel["gamma"] * largest + abs(kernel["coef0"]), 1.0)) > 15)


def _precomputed(X: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, str]:
    """A matrix in the place of rows: a kernel's, or none that any kernel has."""
    X = X[:, np.abs(X).max(axis=0) < 1e6] if np.abs(X).max() > 1e6 else X
    X = X if X.size else np.ones((len(X), 1))
    squared = ((X[:, None, :] - X[None, :, :]) ** 2).sum(axis=2) if len(X) <= 300 else np.zeros((1, 1))
    K = np.exp(-squared / max(X.shape[1], 1))
    what = str(rng.choice(["kernel matrix", "gram matrix", "indefinite kernel", "tanh kernel", "asymmetric kernel"]))
    if what == "gram matrix":
        K = X @ X.T
    elif what == "indefinite kernel":
        K = rng.normal(size=K.shape)
        K = (K + K.T) / 2
    elif what == "tanh kernel":
        K = np.tanh(2 * X @ X.T - 1)
    elif what == "asymmetric kernel":
        K = K.copy()
        K[int(rng.integers(len(K)))] *= 1.3
    return K, what


def _typed(X: np.ndarray, rng: np.random.Generator, form: str, exact: bool) -> np.ndarray:
    """The rows in a dtype that holds them; text has what float32 has."""
    largest = np.abs(X).max()
    if exact:
        return X if form != "text" else X.astype(np.float32)
    if not exact and form != "text" and rng.random() < 0.12 and largest < 2**62:
        whole = np.rint(X)
        fitting = [t for t in ("int8", "uint8", "int16", "int32", "int64") if _holds(whole, np.dtype(t))]
        if fitting:
            return whole.astype(str(rng.choice(fitting)))
    single = form == "text" or rng.random() < 0.5
    return X.astype(np.float32) if single and largest < 1e38 else np.clip(X, -1e300, 1e300)


def _holds(whole: np.ndarray, dtype: np.dtype) -> bool:
    limits = np.iinfo(dtype)
    return bool(whole.min() >= limits.min and whole.max() <= limits.max)


def _called(codes: np.ndarray, rng: np.random.Generator, form: str) -> np.ndarray:
    """Labels as users write them, in the order of their codes."""
    n_classes = int(codes.max()) + 1
    kinds = ["signs", "small", "far", "words", "halves", "bool", "beyond"]
    kind = str(rng.choice(kinds if form != "text" else kinds[:3]))
    if kind == "bool" and n_classes == 2:
        return codes.astype(bool)
    if kind == "words":
        names = np.array(["ant", "bee", "cat", "dog é", "eel", 'Zebra,"x"'])
        return np.sort(names)[codes] if n_classes <= len(names) else codes
    if kind == "far":
        return np.sort(rng.choice(np.arange(-(10**6), 10**6), n_classes, replace=False))[codes]
    if kind == "beyond" and rng.random() < 0.5:
        start = int(rng.choice([2**53, 2**60, 2**62]))
        return np.array([start + k for k in range(n_classes)], np.int64)[codes]
    if kind == "signs" and n_classes == 2:
        return np.where(codes == 1, 1, -1)
    if kind == "halves":
        return codes.astype(np.float64)
    return codes.astype(np.int32)


def _fault(case: Case, rng: np.random.Generator) -> str:
    """Something that must be refused, where the format can have it; it is put in when the rows are written."""
    possible = ["nan"] if case.X.dtype.kind == "f" and case.form not in ("text",) else []
    if case.sparse and case.X.shape[1] > 1 and case.form in ("arrays", "zarr2", "zarr3", "lists", "text"):
        possible.append("twice")
    if case.weights and case.form != "text":
        possible.append("negative weight")
    if case.form == "arrays" and not case.sparse:
        possible.append("masked")
    if case.form == "spark":
        possible.append("sizes")
    return str(rng.choice(possible)) if possible else ""
