"""The model that a fit starts from (--warm-start): loading it, checking it, and matching its models by class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bigsvm.errors import DataError, Unsupported
from bigsvm.files.atomic import file_digest
from bigsvm.files.file_array import FileArray
from bigsvm.model.linear_model import LinearModel, Model, load_alpha, load_model
from bigsvm.model.model_rows import check_alike
from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import Solver
from bigsvm.store.blocks import RowBlocks
from bigsvm.units import counted


class Match(NamedTuple):
    """The earlier model from which a model starts; sign is -1 if its positive class is the other one."""

    model: int
    sign: float


@dataclass(frozen=True)
class Earlier:
    """The model that a fit starts from.

    path, digest : its folder, and the digest of its model.json
    model : Model;  alpha : float64, (n_models, n_samples) in the store's row order, in its file; None if not needed
    matches : the match of each model of the problem; None for a model that the earlier one does not have
    """

    path: str
    digest: str
    model: Model
    alpha: FileArray | np.ndarray | None
    matches: tuple[Match | None, ...]

    @property
    def content(self) -> str:
        """The content fingerprint of the rows that the model was trained on."""
        return str(self.model.about.get("content_fingerprint"))

    def document(self) -> dict[str, Any]:
        """The entry in the new model; without a path, because the same model may be anywhere."""
        taken = "weights" if self.alpha is None else "duals"
        known = None if self.alpha is None else self.alpha.shape[1]
        return {"model": self.digest, "taken": taken, "n_samples": known, "content_fingerprint": self.content}


def model_digest(path: str) -> str:
    """The digest of model.json, which holds all other digests: it identifies the model that a fit starts from."""
    try:
        return file_digest(Path(path).resolve() / "model.json")
    except OSError:
        return f"no model at {path}"  # the fit itself raises the proper error


def open_earlier(path: str, solver: Solver, problem: Problem, store: RowBlocks) -> Earlier:
    """Load the model at `path` with everything that `solver` needs from it for `problem`.

    Raises
    ------
    MissingInput : there is no model.
    DataError : the model is damaged; is a regression while the rows have classes, or the reverse; has none of these
        classes; has more features than the store; or has another recipe of rows.
    Unsupported : the solver needs dual variables, and the model was saved without; or it needs weights, and the model
        has none.
    """
    model = load_model(path)
    digest = model.fingerprint
    if model.regression != problem.regression:
        ours, theirs = ("targets", "classes") if problem.regression else ("classes", "targets")
        raise DataError(f"the model to start from is for {theirs}, but these rows have {ours}", path)
    if model.n_features > store.n_features:
        has = counted(model.n_features, "feature")
        what = f"the model to start from has {has}, but the store has only {store.n_features}"
        raise DataError(what, path, "start from a model of the same rows, to which rows may have been added")
    if problem.joint != model.joint:
        ours, theirs = problem.multi_class, model.multi_class
        raise DataError(
            f"the model to start from was trained with multi_class {theirs!r}, but this fit uses {ours!r}", path
        )
    found = matches(model, problem)
    if not any(found) and model.classes.tolist() == problem.classes.tolist():
        kinds = ("pairs of classes", "each class against the rest")
        theirs, ours = kinds if model.pairs else kinds[::-1]
        raise DataError(
            f"the model to start from is for {theirs}, but this fit is for {ours}", path, "set --multi-class"
        )
    if not any(found):
        classes = f"classes {model.classes.tolist()}, but the store has {problem.classes.tolist()}"
        raise DataError(f"the model to start from has {classes}: no model is common to both", path)
    if solver.starts_from == "weights":
        if not isinstance(model, LinearModel):
            hint = "use a solver of the dual, such as dcd or smo"
            raise Unsupported(f"solver {solver.name!r} starts from weights, but the model has a kernel", path, hint)
        return Earlier(path, digest, model, None, found)
    alpha = load_alpha(Path(path).resolve(), model)
    if alpha is None:
        what = f"solver {solver.name!r} starts from dual variables, but the model was saved without them (--no-dual)"
        raise Unsupported(what, path, "use -s newton-cg or pcd, which start from the weights (squared hinge)")
    if alpha.shape[1] > store.n_samples:
        trained = counted(alpha.shape[1], "row")
        what = f"the model to start from was trained on {trained}, but the store has only {store.n_samples}"
        raise DataError(what, store.uri, "use the store that it was trained on, to which rows may have been appended")
    check_alike(model.about.get("rows", {}), store)
    return Earlier(path, digest, model, alpha, found)


def matches(model: Model, problem: Problem) -> tuple[Match | None, ...]:
    """For each model of the problem, the earlier model for the same classes.

    The single model of two classes also serves as "class against the rest" for either class, if further classes have
    been added: the earlier model saw no row of them.
    """
    if problem.regression:
        return (Match(0, 1.0),) * problem.n_models
    known: dict[Any, Match] = {}
    old = model.classes.tolist()
    for m in range(model.n_models):
        plus, minus = _sides(old, int(model.positive[m]), int(model.negative[m]))
        if minus is None:
            known[(plus, None)] = Match(m, 1.0)
            continue
        for side, other, sign in ((plus, minus, 1.0), (minus, plus, -1.0)):
            known[(side, other)] = Match(m, sign)
            if len(old) == 2:
                known[(side, None)] = Match(m, sign)
    new = problem.classes.tolist()
    pairs = zip(problem.positive.tolist(), problem.negative.tolist(), strict=True)
    return tuple(known.get(_sides(new, plus, minus)) for plus, minus in pairs)


def _sides(classes: list[Any], plus: int, minus: int) -> tuple[Any, Any]:
    """The labels of the positive and the negative class of a model; None for "all others"."""
    if minus < 0 and len(classes) == 2:
        minus = 1 - plus
    return classes[plus], None if minus < 0 else classes[minus]


def small_earlier(solver: Solver, problem: Problem, data: RowBlocks) -> Earlier:
    """A zero model of half of the rows; for the tiny fit that compiles everything before a warm start."""
    m = problem.n_models
    model = LinearModel(np.zeros((m, data.n_features)), np.zeros(m), problem.classes)
    alpha = np.full((m, data.n_samples // 2), 0.5)
    return Earlier(
        "", "", model, alpha if solver.starts_from == "duals" else None, tuple(Match(k, 1.0) for k in range(m))
    )
