"""The model that a fit starts from: read, held against the problem, its models matched by the classes they tell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bigsvm.errors import DataError, Unsupported
from bigsvm.files.atomic import file_digest
from bigsvm.model.linear_model import LinearModel, Model, load_alpha, load_model
from bigsvm.model.model_rows import check_alike
from bigsvm.problem.problem import Problem
from bigsvm.solvers.base import Solver
from bigsvm.store.blocks import RowBlocks


class Match(NamedTuple):
    """Which of the earlier models one of ours goes on from; sign -1 where it calls the other class positive."""

    model: int
    sign: float


@dataclass(frozen=True)
class Earlier:
    """What a fit starts from.

    path, digest : where the model is, and what it is
    model : Model;  alpha : float64, (n_models, n_samples) in the store's row order, a map; None where none is wanted
    matches : of each model of the problem; None for one that the earlier model has not
    """

    path: str
    digest: str
    model: Model
    alpha: np.ndarray | None
    matches: tuple[Match | None, ...]

    @property
    def content(self) -> str:
        """The content fingerprint of the rows that it knew."""
        return str(self.model.about.get("content_fingerprint"))

    def document(self) -> dict[str, Any]:
        """What the new model says of it: no path, since the same model may lie anywhere."""
        taken = "weights" if self.alpha is None else "duals"
        known = None if self.alpha is None else self.alpha.shape[1]
        return {"model": self.digest, "taken": taken, "n_samples": known, "content_fingerprint": self.content}


def model_digest(path: str) -> str:
    """What stands for a model in the identity of a fit that starts from it: its model.json has all other digests."""
    try:
        return file_digest(Path(path).resolve() / "model.json")
    except OSError:
        return f"no model at {path}"  # the fit itself says so, in a sentence


def open_earlier(path: str, solver: Solver, problem: Problem, store: RowBlocks) -> Earlier:
    """The model at `path`, as far as `solver` can use it on `problem`.

    Raises
    ------
    MissingInput : there is no model. DataError : it is damaged; of targets where there are classes, or the reverse; it
        tells none of these classes apart; has more features than the store; or its rows were made in another way.
    Unsupported : the solver starts from duals, and it was saved without; or from weights, and it has none.
    """
    model = load_model(path)
    digest = model_digest(path)
    if model.regression != problem.regression:
        ours, theirs = ("targets", "classes") if problem.regression else ("classes", "targets")
        raise DataError(f"the model to start from is of {theirs}, and these rows have {ours}", path)
    if model.n_features > store.n_features:
        what = f"the model to start from has {model.n_features} features, and the store has {store.n_features}"
        raise DataError(what, path, "start from a model of rows that these go on")
    if problem.joint != model.joint:
        ours, theirs = problem.multi_class, model.multi_class
        raise DataError(
            f"the model to start from was trained with multi_class {theirs!r}, and this fit is {ours!r}", path
        )
    found = matches(model, problem)
    if not any(found) and model.classes.tolist() == problem.classes.tolist():
        kinds = ("pairs of classes", "each class against the rest")
        theirs, ours = kinds if model.pairs else kinds[::-1]
        raise DataError(f"the model to start from is of {theirs}, and this fit of {ours}", path, "say --multi-class")
    if not any(found):
        classes = f"classes {model.classes.tolist()}, and the store has {problem.classes.tolist()}"
        raise DataError(f"the model to start from has {classes}: no model in common", path)
    if solver.starts_from == "weights":
        if not isinstance(model, LinearModel):
            hint = "start a solver of the dual, such as dcd or smo"
            raise Unsupported(f"solver {solver.name!r} starts from weights, and the model has a kernel", path, hint)
        return Earlier(path, digest, model, None, found)
    alpha = load_alpha(Path(path).resolve(), model)
    if alpha is None:
        what = f"solver {solver.name!r} starts from duals, and the model was saved without them (--no-dual)"
        raise Unsupported(what, path, "-s newton-cg or pcd start from the weights (squared hinge)")
    if alpha.shape[1] > store.n_samples:
        what = f"the model to start from knew {alpha.shape[1]} rows, and the store has {store.n_samples}"
        raise DataError(what, store.uri, "give the store that it was trained on, with rows added at the end")
    check_alike(model.about.get("rows", {}), store)
    return Earlier(path, digest, model, alpha, found)


def matches(model: Model, problem: Problem) -> tuple[Match | None, ...]:
    """For each model of the problem the earlier one that tells the same classes apart.

    The one model of two classes is either class against the rest, too: of a third class that comes later it knew no
    row.
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
    """The labels of a model; None for the rest."""
    if minus < 0 and len(classes) == 2:
        minus = 1 - plus
    return classes[plus], None if minus < 0 else classes[minus]


def small_earlier(solver: Solver, problem: Problem, data: RowBlocks) -> Earlier:
    """A model of nothing that knew half of some rows, for a fit that is made so that all is compiled."""
    m = problem.n_models
    model = LinearModel(np.zeros((m, data.n_features)), np.zeros(m), problem.classes)
    alpha = np.full((m, data.n_samples // 2), 0.5)
    return Earlier(
        "", "", model, alpha if solver.starts_from == "duals" else None, tuple(Match(k, 1.0) for k in range(m))
    )
