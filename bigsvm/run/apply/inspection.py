"""What a store or a model holds, and what it would cost: from metadata."""

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
from bigsvm.store.withheld import HashedShare


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
    """Rows of each class by its label, where the store's writer counted them."""
    if classes is None or not isinstance(counts, list) or len(counts) != len(classes):
        return None
    return {str(label): int(n) for label, n in zip(classes, counts, strict=True)}


def _cost(store: RowBlocks) -> dict[str, Any] | None:
    """What `plan` says with default options; None where the rows cannot be fitted as they are."""
    try:
        plan = make_plan(store, FitConfig()).document()
    except PlanRefused as error:
        return {
            "mode": "refused",
            "budget_bytes": 0,
            "scratch_bytes": 0,
            "min_memory_bytes": error.min_memory_bytes,
        }
    except (DataError, UsageError):  # one class only, or a regression target
        return None
    return {name: plan[name] for name in ("mode", "budget_bytes", "scratch_bytes", "min_memory_bytes")}


def strongest(model: Model, n: int) -> list[dict[str, Any]]:
    """The features that speak loudest for each class: `n` names and weights, the largest first, 0 left out.

    Two classes: weights of the second, and of the first with the other sign.  Of pairs of classes one entry each.
    Regression: the largest by their size.  Features without names go by their numbers from 0.

    Raises UsageError for a kernel model, whose features have no weights.
    """
    weights = model.weights
    if weights is None:
        raise UsageError("the features of a kernel model have no weights", hint="--top is for linear models")
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
    """How many rows the objective is of, where some were held out for a calibration; else nothing."""
    held, n_samples = about.get("calibration", {}).get("held_out"), about.get("n_samples")
    if not held or not isinstance(n_samples, int):
        return {}
    # Not `n_rows`, of which the curves were made: a small budget leaves some of the held-out rows out of these, too.
    n_held = HashedShare(float(held["share"]), int(held["seed"])).count(n_samples)
    return {"n_trained": n_samples - n_held, "n_held_out": n_held}


def inspect_model(path: Path, top: int | None = None, loaded: Model | None = None) -> dict[str, Any]:
    """Problem, proof and size of a saved model.  Raises DataError where it is damaged.

    top : the strongest features of each class, so many (`strongest`)
    loaded : the model, where it is loaded already
    """
    model = loaded or load_model(path)
    about = model.about
    return {
        **({} if top is None else {"top": strongest(model, top)}),
        "kind": "model",
        "path": str(path),
        "n_features": model.n_features,
        "n_models": model.n_models,
        "classes": model.classes.tolist(),
        "regression": model.regression,
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
        **({"chosen": about["rows"]["chosen"]} if "chosen" in about.get("rows", {}) else {}),
        "content_fingerprint": about.get("content_fingerprint"),
        "has_alpha": "alpha.npy" in about.get("digests", {}),
        "bytes": tree_bytes(path),
    }
