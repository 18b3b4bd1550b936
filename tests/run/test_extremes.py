"""Values at the ends of float64: no warning of NumPy leaves a fit, and what cannot be computed is announced."""

from __future__ import annotations

import itertools
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.errors import BigSVMError
from tests.products import each_of

X = np.random.default_rng(0).standard_normal((40, 3))
Y = (X[:, 0] > 0).astype(int)
TARGETS = X @ [1.0, 2.0, 3.0]

SOLVERS = [
    "auto",
    "dcd",
    "newton",
    "newton-cg",
    "newton-ws",
    "pcd",
    "cd",
    "hyperpass",
    "ssvm",
    "pegasos",
    "smo",
    "rosen",
]
LOSSES = ["hinge", "squared_hinge", "epsilon_insensitive", "squared_epsilon_insensitive"]
ENDS = [(1e-320, 1.0), (1e-160, 1.0), (1e155, 1.0), (1e300, 1.0), (1.0, 1e-320), (1.0, 1e300), (1.0, 1.7e308)]
"""Factor of the features, and C."""


@pytest.mark.parametrize(("solver", "loss"), [*itertools.product(SOLVERS, LOSSES)])
def test_solvers_end_with_a_proof_or_an_announcement(solver: str, loss: str) -> None:
    y = TARGETS if "epsilon" in loss else Y
    for (factor, C), bias in itertools.product(ENDS, ["augmented", "free"]):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                result = bigsvm.fit((X * factor, y), solver=solver, loss=loss, C=C, bias=bias, max_passes=20.0)
            except BigSVMError:
                continue
            scores = result.model.decision_function(X * factor)
        if result.status == "converged":
            assert np.isfinite(result.certificate.relative_gap)
            assert np.isfinite(scores).all()


KERNELS: list[dict[str, Any]] = [
    {"kernel": "linear"}, {"kernel": "rbf"}, {"kernel": "poly"}, {"kernel": "sigmoid"},
    *({"kernel": kernel, "gamma": gamma} for kernel in ("rbf", "poly", "sigmoid") for gamma in (1e-320, 1e-300, 1e300)),
    *({"kernel": "poly", "coef0": coef0} for coef0 in (1e-300, 1e150, 1e300)), {"kernel": "poly", "degree": 500},
]  # fmt: skip


@pytest.mark.parametrize("name", ["SVC", "SVR", "NuSVC", "NuSVR", "OneClassSVM", "LinearSVC", "LinearSVR"])
def test_estimators_warn_in_words_only(name: str) -> None:
    pytest.importorskip("sklearn")
    from sklearn.exceptions import ConvergenceWarning

    import bigsvm.sklearn

    kind = getattr(bigsvm.sklearn, name)
    y, refused = TARGETS if name.endswith("R") else Y, list[str]()
    for options, factor in itertools.product(
        [{}] if "Linear" in name else KERNELS, [1.0, 1e-320, 1e-160, 1e155, 1e300]
    ):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                estimator = kind(**options).fit(X * factor, y)
                scores = getattr(estimator, "decision_function", estimator.predict)(X * factor)
            except (ValueError, MemoryError) as error:
                refused.append(str(error))
                continue
        assert {warning.category for warning in told} <= {ConvergenceWarning}
        assert told or (np.isfinite(estimator.relative_gap_) and np.isfinite(scores).all())
    assert not any("gamma must be" in said for said in refused)  # the gamma of 'scale' is not the user's


@each_of(
    factor=[1e-320, 1e-160, 1e155, 1e300],
    options=[[], ["--kernel", "rbf"], ["--kernel", "linear", "-s", "smo"], ["-c", "1e300"]],
)
def test_the_command_passes_where_warnings_are_errors(options: list[str], factor: float, tmp_path: Path) -> None:
    bigsvm.ingest((X * factor, Y), tmp_path / "rows.zarr")
    command = ["-m", "bigsvm", "fit", "rows.zarr", "-o", "m", "--max-passes", "20", "--quiet", *options]
    strict = ["-W", "error::RuntimeWarning"]
    done = subprocess.run(
        [sys.executable, *strict, *command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 3, 4, 65), done.stderr
    assert "RuntimeWarning" not in done.stderr


@pytest.mark.parametrize("scale", [1e-8, 1e-12])
@pytest.mark.parametrize(
    ("loss", "options"),
    [
        *((loss, {"nu": 0.3, "kernel": "rbf", "gamma": 0.3}) for loss in ("nu_svc", "nu_svr", "one_class")),
        ("epsilon_insensitive", {"kernel": "rbf", "gamma": 0.3}),
        ("squared_epsilon_insensitive", {"solver": "dcd"}),
    ],
)
def test_small_weights_of_rows_and_small_targets_are_no_obstacle(
    loss: str, options: dict[str, Any], scale: float, tmp_path: Path
) -> None:
    """A violation below 1e-13 counted as rounding, whatever the size of the scores: such fits ended as stalled."""
    rng = np.random.default_rng(0)
    if "squared" in loss:
        scale *= 1e-2  # weights do not make its scores small
    X = rng.normal(size=(60, 3))
    told = X[:, 0] + 0.5 * rng.normal(size=60)
    targets = scale * told if loss == "nu_svr" or "insensitive" in loss else np.where(told > 0, 1, -1)
    weight = np.full(60, 1.0 if "squared" in loss else scale)
    width = {"epsilon": 0.1 * scale} if "insensitive" in loss else {}
    result = bigsvm.fit((X, targets, weight), loss=loss, tol=1e-6, **width, **options)
    assert result.status == "converged"
    result.save_model(tmp_path / "m")
    assert bigsvm.certify(tmp_path / "m", (X, targets, weight))["relative_gap"] <= 1e-6
