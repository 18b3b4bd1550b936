"""--max-passes is kept, unless it is less than a first step and its proof."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bigsvm
from bigsvm.config import KERNEL_SOLVERS, FitConfig
from bigsvm.run.fit.fit import fit_store
from bigsvm.solvers.registry import SOLVERS
from tests.classifiers import CLASSIFIERS
from tests.run.test_checkpoint import classes, comes_to_the_same

LINEAR = [name for name in CLASSIFIERS if name not in KERNEL_SOLVERS]


def config(name: str, limit: float, **options: Any) -> FitConfig:
    given = {"solver": name, "loss": SOLVERS[name].losses[0], "tol": 1e-12, "memory": "64MiB", **options}
    return FitConfig.of(max_passes=limit, **({"C": 10.0} if "nu" not in options else {}), **given)


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize(("name", "bias"), [(name, bias) for name in LINEAR for bias in SOLVERS[name].biases[::2]])
def test_no_more_passes_are_read_than_may_be(name: str, bias: str) -> None:
    """`biases[::2]`: augmented and, where there is one, free."""
    store = bigsvm.open_store(classes(3, 120))
    for limit in (4, 9, 12):
        assert fit_store(store, config(name, limit, bias=bias)).figures["passes"] <= limit


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("options", [{}, {"loss": "nu_svc", "nu": 0.3}], ids=["", "nu"])
def test_proofs_of_kernel_models_are_counted_before_they_are_made(options: dict[str, Any]) -> None:
    """With nu each of the three models has a proof of its own, of two passes."""
    store = bigsvm.open_store(classes(3, 120))
    for limit in (10, 13, 16):
        result = fit_store(store, config("smo", limit, kernel="rbf", gamma=0.3, **options))
        assert result.figures["passes"] <= limit
        assert result.figures["certificate_passes"] == pytest.approx(5.5 if options else 2.0, abs=1.0)


@pytest.mark.parametrize("name", LINEAR)
def test_no_more_epochs_are_taken_than_may_be(name: str) -> None:
    store = bigsvm.open_store(classes(3, 120))
    for limit in (4, 9, 12):
        assert fit_store(store, config(name, limit)).figures["epochs"] <= limit


@pytest.mark.usefixtures("streaming")
def test_a_system_that_a_limit_shortens_takes_as_many_products_in_a_resumed_run(tmp_path: Path) -> None:
    """How many passes were left is counted from the beginning of the step, not from where it was left."""
    options = {"solver_options": {"forcing": "1e-9"}}  # the limit ends the first system
    comes_to_the_same(bigsvm.open_store(classes(2)), config("newton-cg", 9, **options), tmp_path, 6)
