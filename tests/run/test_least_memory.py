"""Memory that a refusal of `predict`, `evaluate` or `tune` names: with it the command runs, with less it does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import bigsvm
from bigsvm.budget import MemoryBudget
from bigsvm.config import FitConfig
from bigsvm.errors import BigSVMError, PlanRefused
from bigsvm.model.linear_model import LinearModel
from bigsvm.run.apply.evaluate import evaluate
from bigsvm.run.apply.predict import predict
from bigsvm.run.apply.scoring import least_of_store, least_of_text
from bigsvm.store.formats.opener import open_store
from bigsvm.units import MIB
from tests.products import each_of

WIDTH = 60_000


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store and svmlight text of 60 sparse rows of six classes."""
    folder = tmp_path_factory.mktemp("least")
    rng = np.random.default_rng(4)
    X = sp.random_array((60, WIDTH), density=1e-3, rng=rng, format="csr").astype(np.float32)
    bigsvm.ingest((X, np.arange(60) % 6), folder / "rows.zarr")
    bigsvm.ingest((X, np.arange(60) % 2), folder / "two.zarr")
    for name in ("rows", "two"):
        lines = [
            f"{row % (6 if name == 'rows' else 2)} "
            + " ".join(f"{j + 1}:{x:.6g}" for j, x in zip(X[[row]].indices, X[[row]].data, strict=True))
            for row in range(60)
        ]
        (folder / f"{name}.svm").write_text("\n".join(lines) + "\n")
    return folder


def linear(n_classes: int) -> LinearModel:
    n_models = 1 if n_classes == 2 else n_classes
    rng = np.random.default_rng(n_classes)
    return LinearModel(rng.standard_normal((n_models, WIDTH)), np.zeros(n_models), np.arange(n_classes))


def refusal(call: Callable[[FitConfig], Any], memory: int) -> PlanRefused | None:
    try:
        call(FitConfig.of(memory=memory, threads=2))
    except PlanRefused as error:
        return error
    return None


@each_of(command=["evaluate", "predict"], kind=["store", "text"], n_classes=[2, 6])
def test_the_first_refusal_names_what_is_enough(
    command: str, kind: str, n_classes: int, rows: Path, tmp_path: Path
) -> None:
    name = "two" if n_classes == 2 else "rows"
    source: Any = str(rows / f"{name}.svm") if kind == "text" else open_store(rows / f"{name}.zarr")
    model = linear(n_classes)

    def call(config: FitConfig) -> Any:
        if command == "evaluate":
            return evaluate(model, source, config)
        return predict(model, source, tmp_path / "p.csv", "csv", config=config, overwrite=True)

    refused = refusal(call, MIB)
    assert refused is not None
    least = refused.min_memory_bytes
    assert least is not None
    # The weights are part of it: with several models those of the scorer, too.
    rows_alone = least_of_text(model) if kind == "text" else least_of_store(source, model)
    assert least >= rows_alone + model.coef.nbytes * (2 if n_classes > 2 else 1)
    assert f"--memory {-(-least // MIB)}MiB" in refused.hint
    assert refusal(call, least) is None
    again = refusal(call, least - 1)
    assert again is not None
    assert again.min_memory_bytes == least


def test_of_a_search_the_weights_are_held_beside_its_fits(rows: Path) -> None:
    def call(memory: int) -> Any:
        return bigsvm.tune(rows / "two.zarr", Cs=[0.1, 1.0, 10.0], folds=5, tol=0.1, memory=memory, threads=1)

    with pytest.raises(PlanRefused, match="of memory cannot hold") as refused:
        call(4 * MIB)
    weights = 8 * 15 * (WIDTH + 1)
    least = refused.value.min_memory_bytes
    assert least is not None
    assert least > 2 * weights
    found = call(least)
    assert found.figures["memory"]["budget_bytes"] == least
    with pytest.raises(BigSVMError):
        call(least - MIB)


def test_a_budget_says_what_would_do() -> None:
    budget = MemoryBudget(10 * MIB)
    with budget.reserve("this", 4 * MIB), pytest.raises(PlanRefused, match="--memory 12MiB or more") as refused:
        budget.reserve("that", 8 * MIB)
    assert refused.value.min_memory_bytes == 12 * MIB
