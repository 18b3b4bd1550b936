"""The problem of a saved model, rebuilt from its files; and the names of its models in a result."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

import numpy as np

from bigsvm.errors import DataError, Unsupported, in_words
from bigsvm.model.linear_model import Model
from bigsvm.problem.certificate import Certificate
from bigsvm.problem.kernel import Definite, How, Kernel
from bigsvm.problem.loss import loss_named
from bigsvm.problem.problem import Problem, centre_of
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.transforms.label_sets import LabelSets

TRAINING_STORE = "give the training store, with the same --label and --weight as for fit"


def _some(classes: np.ndarray) -> str:
    """The first of the classes, for a message."""
    more = f" and {len(classes) - 10} more" if len(classes) > 10 else ""
    return ", ".join(map(str, classes[:10].tolist())) + more


def problem_of(model: Model, store: RowBlocks) -> Problem:
    """The problem that a saved model solved.

    Raises DataError if the store has other classes than the model, or model.json does not define the problem.
    """
    if model.regression:
        if store.classes is not None:
            raise DataError("the store holds classes, but the model is a regression", store.uri, TRAINING_STORE)
    elif model.one_class:
        pass  # a one_class model ignores labels
    elif model.multi_label:
        pass  # sets of labels are compared below, label by label
    elif store.classes is None or store.classes.tolist() != model.classes.tolist():
        theirs = "no classes, but targets" if store.classes is None else f"the classes {_some(store.classes)}"
        raise DataError(f"the store has {theirs}, and the model {_some(model.classes)}", store.uri, TRAINING_STORE)
    n_models = model.n_models
    _check_imported(model)
    try:
        about = model.about["problem"]
        C, class_weight = np.array(about["C"], np.float64), np.array(about["class_weight"], np.float64)
        loss = loss_named(about["loss"], nu=about.get("nu", 0.5))
        if loss.regression:
            loss = dataclasses.replace(loss, epsilon=float(about["epsilon"]))
        bias, bias_scale = about["bias"], float(about["bias_scale"])
        kernel = _kernel_of(model, about.get("positive_semidefinite", {}))
    except (KeyError, TypeError, ValueError, AttributeError, Unsupported) as error:
        raise DataError(f"model.json has no valid problem: {in_words(error)}", "model.json") from error
    sound = (
        C.shape == (n_models,)
        and class_weight.shape == (max(len(model.classes), 1),)
        and np.all(np.isfinite(C) & (C > 0))
        and np.all(np.isfinite(class_weight) & (class_weight >= 0))
        and bias in ("augmented", "none", "free")
        and 0 < bias_scale < np.inf
        and 0 <= loss.epsilon < np.inf
        and loss.regression == model.regression
        and loss.joint == model.joint
        and (len(model.classes) > 2 or not loss.joint)
        and (np.all(C[0] == C) or not loss.joint)
        and (loss.nu is None or (0 < loss.nu <= 1 and bias == "free"))
    )
    if not sound:
        raise DataError(
            f"no fit solves such a problem: {loss.name}, C = {C.tolist()}, class weights {class_weight.tolist()}, "
            f"bias {bias!r}",
            "model.json",
        )
    member = _member_of(model, store)
    return Problem(
        loss=loss,
        C=C,
        class_weight=class_weight if member is None else np.ones(member.shape[1]),
        bias=bias,
        bias_scale=bias_scale,
        classes=model.classes,
        positive=model.positive,
        negative=model.negative,
        kernel=kernel,
        centre=centre_of(store, bias, bias_scale, kernel),
        member=member,
    )


def _member_of(model: Model, store: RowBlocks) -> np.ndarray | None:
    """The membership of rows in the model's labels; None for one label each.  Raises DataError for other labels."""
    if not model.multi_label:
        return None
    sets = LabelSets.of(store.recipe, store.classes)
    found = [] if sets is None else sets.names.tolist()
    if sets is None or found != model.classes.tolist():
        what = f"the labels {', '.join(map(str, found)) or 'are one a row'}"
        hint = "name the columns of labels with --labels"
        raise DataError(f"{what}, but the model's are {', '.join(map(str, model.classes.tolist()))}", store.uri, hint)
    return sets.member


def _check_imported(model: Model) -> None:
    """Raise DataError for an imported model whose file lacks what a proof needs."""
    imported = model.about.get("imported")
    if not isinstance(imported, dict):
        return
    problem, program = model.about.get("problem", {}), imported.get("program")
    if "loss" not in problem:
        kind = imported.get("solver_type") or imported.get("svm_type")
        raise DataError(f"the model is {program}'s {kind}, which solves another problem, so there is no gap to prove")
    if model.kind == "kernel":
        raise DataError(
            f"the model is from {program}, whose file lacks the rows of support vectors: nothing can be proved",
            hint="use bigsvm evaluate instead",
        )
    for name, flag in (("C", "--c"), *((("epsilon", "--epsilon"),) if model.regression else ())):
        if name not in problem:
            raise DataError(
                f"the model is from {program}, whose file does not record {name}, so no gap can be proved",
                hint=f"import it again with the {flag} of its training",
            )


def _kernel_of(model: Model, definite: dict[str, Any]) -> Kernel:
    """The kernel of the model, with what its fit knew of it; whatever was refuted or undecided is checked again."""
    how = definite.get("how", "undecided")
    if how not in get_args(How):
        raise ValueError(f"the kernel is {how!r}")
    tolerance = float(definite.get("tolerance", 0.0))
    # Kernels given by a formula are not checked in a fit: they are known, or cannot be known.
    believed = how == "assumed" or (how == "checked" and model.kernel.name == "precomputed")
    known = Definite(how, tolerance) if believed else Definite()
    return dataclasses.replace(model.kernel, definite=known)


def models_document(problem: Problem, certificate: Certificate) -> list[dict[str, Any]]:
    """An entry for each model, as in the list of a result; for a pair, also the class that it is `against`."""
    gaps = certificate.relative_gaps
    return [
        {
            **_classes_of(problem, m),
            "objective": float(certificate.primal[m]),
            "duality_gap": float(certificate.gap[m]),
            "relative_gap": float(gaps[m]),
            "n_support": int(certificate.n_support[m]),
        }
        for m in range(problem.n_proofs)
    ]


def _classes_of(problem: Problem, m: int) -> dict[str, Any]:
    """The classes of a model; none for regression, and for one loss of all classes."""
    if problem.regression or problem.one_class or problem.joint:
        return {"class": None}
    named = {"class": problem.classes[problem.positive[m]].item()}
    if problem.negative[m] >= 0:
        named["against"] = problem.classes[problem.negative[m]].item()
    return named
