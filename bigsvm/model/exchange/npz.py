"""A model as one .npz of plain arrays, for programs that read NumPy's files; nothing in it is pickled.

kind             'linear' or 'kernel'
classes          labels in ascending order; none for regression
positive, negative   int32, (n_models,)   class codes; negative is -1 for all others
intercept        float64, (n_models,)
coef             float64, (n_models, n_features)                    of a linear model
dual_coef        float64, (n_models, n_support)                     of a kernel model, with what follows
support          (n_support, n_features), or support_data, support_indices, support_indptr of CSR rows
support_rows     int64, (n_support,)
n_features       int64
about            JSON: problem with the kernel's parameters, certificate, rows with their scaling, ...
"""

from __future__ import annotations

import json
from typing import Any, BinaryIO

import numpy as np

from bigsvm.csr import CSR
from bigsvm.model.kernel_model import KernelModel
from bigsvm.model.linear_model import Model
from bigsvm.model.support import gathered
from bigsvm.model.support_files import SPARSE


def write(file: BinaryIO, model: Model) -> None:
    """Write it."""
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
    arrays["about"] = np.array(json.dumps(about, sort_keys=True, allow_nan=False))
    np.savez(file, allow_pickle=False, **arrays)
