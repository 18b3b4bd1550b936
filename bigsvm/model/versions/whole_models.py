"""Checks of a model before it enters a registry: complete, finite, and of the shape of the current model."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bigsvm.errors import BigSVMError, DataError
from bigsvm.files.atomic import file_digest
from bigsvm.model.linear_model import Model, load_alpha, load_model
from bigsvm.model.model_files import is_finite
from bigsvm.model.saved import read_as_one
from bigsvm.units import counted


def check_model(path: Path) -> Model:
    """Load a model and check that it is complete, finite and not empty.  Raises MissingInput, DataError."""
    return read_as_one(path, lambda: _checked(path))


def _checked(path: Path) -> Model:
    try:
        model = load_model(path)
        named = model.about["digests"]
        for name, digest in named.items():
            # The name comes from a document: it must not lead out of the folder.
            if Path(name).name != name or not (path / name).is_file():
                raise DataError(f"model.json names {name!r}, which is missing", str(path))
            if file_digest(path / name) != digest:
                raise DataError("damaged: its digest does not match model.json", str(path / name))
        alpha = load_alpha(path, model)
    except (BigSVMError, OSError, MemoryError):
        raise
    except Exception as error:  # a garbled file can raise anything in a parser
        raise DataError(f"cannot be loaded: {type(error).__name__}: {error}", str(path)) from error
    if model.n_features < 1 or len(model.classes) == 1:
        raise DataError(f"empty: {model.n_features} features, {len(model.classes)} classes", str(path))
    if alpha is not None and not is_finite(alpha):
        raise DataError("values that are not finite", str(path / "alpha.npy"))
    if len(np.unique(model.classes)) != len(model.classes):
        raise DataError("a class is named twice", str(path / "model.json"))
    return model


def shape_difference(model: Model, former: Model) -> str | None:
    """The difference between the features or classes of two models, in words; None if there is none."""
    if model.n_features != former.n_features:
        return f"the model has {counted(model.n_features, 'feature')} and the current one {former.n_features}"
    if model.regression != former.regression:
        gives = {True: "values", False: "labels"}
        return f"the model gives {gives[model.regression]} and the current one {gives[former.regression]}"
    ours, theirs = model.classes.tolist(), former.classes.tolist()
    return None if ours == theirs else f"the model has the classes {ours} and the current one {theirs}"
