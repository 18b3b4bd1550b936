"""A model as one .npz of plain arrays, for programs that read NumPy's files.  Nothing in it is pickled.

kind             'linear' or 'kernel'
classes          labels in ascending order; none for regression
positive, negative   int32, (n_models,)   class codes; negative is -1 for all others
intercept        float64, (n_models,)
coef             float64, (n_models, n_features)                    linear models only
dual_coef        float64, (n_models, n_support)                     kernel models only, like the following arrays
support          (n_support, n_features), or support_data, support_indices, support_indptr of CSR rows
support_rows     int64, (n_support,)
n_features       int64
about            JSON: problem with the kernel's parameters, certificate, rows with their scaling, ...
"""

from __future__ import annotations

import json
import zipfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from bigsvm.csr import CSR
from bigsvm.errors import DataError, UsageError
from bigsvm.files.packed_text import listed
from bigsvm.files.plain_arrays import load_arrays
from bigsvm.files.temporary import temporary_folder
from bigsvm.model.decide import models_of
from bigsvm.model.kernel_model import KernelModel
from bigsvm.model.linear_model import LinearModel, Model, load_model
from bigsvm.model.support import gathered
from bigsvm.model.support_files import SPARSE
from bigsvm.problem.kernel import Kernel


def write(file: BinaryIO, model: Model) -> None:
    """Write the model."""
    arrays: dict[str, Any] = {
        "kind": np.array(model.kind), "classes": model.classes, "positive": model.positive,
        "negative": model.negative, "intercept": model.intercept, "n_features": np.array(model.n_features, np.int64),
    }  # fmt: skip
    about = model.about
    if isinstance(model, KernelModel):
        about = {**about, "problem": {**about.get("problem", {}), "kernel": model.kernel.document()}}
        arrays |= {"dual_coef": np.asarray(model.dual_coef), "support_rows": np.asarray(model.support_rows)}
        support = None if model.support is None else gathered(model.support)
        if isinstance(support, CSR):
            arrays |= {name.removesuffix(".npy"): part for name, part in zip(SPARSE, support, strict=True)}
        elif support is not None:
            arrays["support"] = np.asarray(support)
    else:
        arrays["coef"] = model.coef
    arrays["about"] = np.array(json.dumps(about, sort_keys=True, allow_nan=False, default=listed))
    if any(np.asarray(part).dtype.hasobject for part in arrays.values()):
        raise ValueError("Python objects cannot be written")  # `allow_pickle=False` is an array to NumPy before 2.2
    np.savez(file, **arrays)


def read(file: BinaryIO, path: Path) -> Model:
    """Read a model that `write` wrote: the same arrays to the last bit, and the same `about`.

    The checks are those of a model's folder.  Raises DataError, naming `path`, if it is not such a model.
    """
    if not zipfile.is_zipfile(file):
        raise DataError("not a complete .npz file", str(path))
    file.seek(0)
    try:
        model = _model(load_arrays(file))
    except KeyError as error:
        raise DataError(f"not a model that bigsvm export wrote: it lacks {error}", str(path)) from error
    except (ValueError, TypeError, AttributeError, UsageError, RecursionError, *_BROKEN) as error:
        raise DataError(f"not a model that bigsvm export wrote: {error}", str(path)) from error
    with temporary_folder() as folder:
        try:
            model.save(folder / "model")
            load_model(folder / "model")
        except DataError as error:
            raise DataError(f"the model cannot be used: {error.what}", str(path)) from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DataError(f"the model cannot be used: {error}", str(path)) from error
    return model


_BROKEN = (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError)
"""The exceptions of Python's zipfile for a damaged file."""


def _model(arrays: dict[str, np.ndarray]) -> Model:
    """The model in these arrays.  Raises KeyError if one is missing, and ValueError or others if one is malformed."""
    about = json.loads(str(arrays["about"]))
    if not isinstance(about, dict):
        raise ValueError("'about' is not a JSON object")
    about.pop("digests", None)
    kind, classes, intercept = str(arrays["kind"]), arrays["classes"], arrays["intercept"]
    codes = arrays["positive"], arrays["negative"]
    if classes.ndim != 1 or any(part.shape != intercept.shape or part.ndim != 1 for part in codes):
        raise ValueError("'classes', 'positive', 'negative' and 'intercept' do not fit each other")
    expected = models_of(len(classes), bool(np.any(codes[1] >= 0)))
    if not all(np.array_equal(ours, theirs) for ours, theirs in zip(codes, expected, strict=True)):
        raise ValueError("'positive' and 'negative' do not belong to these classes")
    codes = codes[0].astype(np.int32), codes[1].astype(np.int32)
    if kind == "linear":
        return LinearModel(_floats(arrays, "coef"), _floats(arrays, "intercept"), classes, about, *codes)
    if kind != "kernel":
        raise ValueError(f"unknown kind of model {kind!r}")
    support: Any = arrays.get("support")
    sparse = [name.removesuffix(".npy") for name in SPARSE]
    kernel = Kernel.of_document(about["problem"]["kernel"])
    if support is None and kernel.name != "precomputed":
        support = CSR(*(arrays[name] for name in sparse))
    return KernelModel(
        kernel, support, arrays["support_rows"], _floats(arrays, "dual_coef"), _floats(arrays, "intercept"), classes,
        int(arrays["n_features"]), *codes, about,
    )  # fmt: skip


def _floats(arrays: dict[str, np.ndarray], name: str) -> np.ndarray:
    if arrays[name].dtype != np.float64:
        raise ValueError(f"{name!r} is {arrays[name].dtype}, not float64")
    return np.ascontiguousarray(arrays[name])
