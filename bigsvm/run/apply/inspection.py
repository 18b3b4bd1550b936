"""`bigsvm inspect`: the contents of a store or a model, and the cost of a fit, from metadata."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.config import FitConfig
from bigsvm.errors import DataError, PlanRefused, UsageError
from bigsvm.model.linear_model import Model, load_model
from bigsvm.run.fit.plan import make_plan
from bigsvm.store.blocks import RowBlocks, row_bytes
from bigsvm.store.content import scale_warning
from bigsvm.store.copy.copy_folder import tree_bytes
from bigsvm.store.formats.chosen.split_rows import recorded_split
from bigsvm.store.transforms.withheld import HashedShare


def inspect_store(store: RowBlocks) -> dict[str, Any]:
    """Shape, labels, types, chunks, fingerprints and the cost of a fit with default options."""
    content = store.content
    nnz = store.nnz
    cells = store.n_samples * store.n_features
    classes = None if store.classes is None else store.classes.tolist()
    counts = content.get("class_counts")
    scales = content.get("column_scale") or {}
    path = Path(store.uri)
    stored = store.stored_bytes
    if stored is None and path.exists():
        stored = path.stat().st_size if path.is_file() else tree_bytes(path)
    return {
        "kind": "store",
        "path": store.uri,
        "layout": store.layout,
        "n_samples": store.n_samples,
        "n_features": store.n_features,
        "nnz": nnz,
        "density": nnz / cells if nnz is not None and cells else None,
        "dtype": str(store.dtype),
        "index_dtype": str(store.index_dtype),
        "classes": classes,
        "class_counts": _named_counts(classes, counts),
        "has_weights": store.has_weights,
        "split": recorded_split(store),
        "data_bytes": int(row_bytes(store) * store.n_samples),
        "stored_bytes": stored,
        "empty_chunks": dict(store.empty_chunks),
        "chunk_bytes": store.chunk_nbytes or None,
        "column_scale": scales,
        "scale_warning": scale_warning(scales, names=store.feature_names),
        "store_fingerprint": store.fingerprint,
        "content_fingerprint": store.content_fingerprint,
        "cost": _cost(store),
    }


def _named_counts(classes: list[Any] | None, counts: Any) -> dict[str, int] | None:
    """Label -> number of rows of the class, if the writer of the store counted them."""
    if classes is None or not isinstance(counts, list) or len(counts) != len(classes):
        return None
    return {str(label): int(n) for label, n in zip(classes, counts, strict=True)}


def _cost(store: RowBlocks) -> dict[str, Any] | None:
    """The plan of a fit with default options; None if the rows cannot be fitted as they are."""
    try:
        plan = make_plan(store, FitConfig()).document()
    except PlanRefused as error:
        return {
            "mode": "refused",
            "budget_bytes": 0,
            "scratch_bytes": 0,
            "min_memory_bytes": error.min_memory_bytes,
        }
    except (DataError, UsageError):  # only one class, or a regression target
        return None
    return {name: plan[name] for name in ("mode", "budget_bytes", "scratch_bytes", "min_memory_bytes")}


def strongest(model: Model, n: int) -> list[dict[str, Any]]:
    """The features with the largest weights for each class: `n` names and weights, the largest first, without zeros.

    Two classes: the weights for the second class, and with opposite sign for the first.  One against one: an entry for
    each pair.  Regression: the largest by absolute value.  Features without names are given by their numbers, from 0.

    Raises UsageError for a kernel model, which has no weights of features.
    """
    weights = model.weights
    if weights is None:
        raise UsageError(
            "a kernel model has no weights of features", hint="leave out --top, which is for linear models"
        )
    names = model.about.get("rows", {}).get("features", [])
    classes = model.classes.tolist()
    told: list[tuple[dict[str, Any], np.ndarray]] = []
    if model.regression:
        told = [({"class": None}, weights[0])]
    elif model.n_models == 1:
        told = [({"class": classes[0]}, -weights[0]), ({"class": classes[1]}, weights[0])]
    else:
        for m, coef in enumerate(weights):
            who = {"class": classes[model.positive[m]]}
            if model.negative[m] >= 0:
                who["against"] = classes[model.negative[m]]
            told.append((who, coef))
    found = []
    for who, coef in told:
        rank = np.abs(coef) if model.regression else coef
        order = np.argsort(-rank, kind="stable")[:n]
        features = [
            {"feature": names[j] if j < len(names) else str(j), "weight": float(coef[j])}
            for j in order.tolist()
            if rank[j] > 0
        ]
        found.append({**who, "features": features})
    return found


def _trained(about: dict[str, Any]) -> dict[str, int]:
    """The number of rows behind the objective, if some were held out for a calibration; else nothing."""
    held, n_samples = about.get("calibration", {}).get("held_out"), about.get("n_samples")
    if not held or not isinstance(n_samples, int):
        return {}
    # Not `n_rows` of the calibration: that is smaller if a small budget left out some of the held-out rows.
    n_held = HashedShare(float(held["share"]), int(held["seed"])).count(n_samples)
    return {"n_trained": n_samples - n_held, "n_held_out": n_held}


def inspect_model(path: Path, top: int | None = None, loaded: Model | None = None) -> dict[str, Any]:
    """Problem, certificate and size of a saved model.  Raises DataError if it is damaged.

    `label_column` is the column of the training labels, None if its name is not known; `weight_column` that of weights.

    top : also give this many features with the largest weights for each class (`strongest`)
    loaded : the model, if it is loaded already
    """
    model = loaded or load_model(path)
    about = model.about
    split = about.get("rows", {}).get("split")
    return {
        **({} if top is None else {"top": strongest(model, top)}),
        "kind": "model",
        "path": str(path),
        "n_features": model.n_features,
        "n_models": model.n_models,
        "classes": model.classes.tolist(),
        "regression": model.regression,
        "label_column": about.get("rows", {}).get("label_column"),
        "weight_column": about.get("rows", {}).get("weight_column"),
        **model.summary(),
        "problem": about.get("problem", {}),
        "certificate": about.get("certificate", {}),
        **({"imported": about["imported"]} if "imported" in about else {}),
        "status": about.get("status"),
        "tol": about.get("tol"),
        "seed": about.get("seed"),
        "plan": about.get("plan", {}),
        "n_samples": about.get("n_samples"),
        **_trained(about),
        **({"split": split} if isinstance(split, float) else {}),
        **({"chosen": about["rows"]["chosen"]} if "chosen" in about.get("rows", {}) else {}),
        "content_fingerprint": about.get("content_fingerprint"),
        "has_alpha": "alpha.npy" in about.get("digests", {}),
        "bytes": tree_bytes(path),
    }
