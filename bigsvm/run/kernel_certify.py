"""The proof of a saved model whose dual has kernel values in it: kernels, pairs of classes, regression."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bigsvm.config import FitConfig
from bigsvm.errors import Unsupported
from bigsvm.events import Emit
from bigsvm.problem.model import Model
from bigsvm.store.blocks import RowBlocks


def certify_kernel_model(path: Path, model: Model, store: RowBlocks, config: FitConfig, emit: Emit) -> dict[str, Any]:
    """Prove the duality gap of a saved kernel model, of pairs of classes or of regression, on its store.

    Raises Unsupported : this version cannot.
    """
    kind = "regression" if model.regression else "pairs of classes" if model.pairs else "a kernel"
    raise Unsupported(f"models of {kind} cannot be certified again yet", hint="model.json has the proof of its fit")
