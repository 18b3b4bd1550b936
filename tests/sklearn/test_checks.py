"""scikit-learn's own checks of estimators."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sklearn")

import sklearn.svm
from sklearn.base import BaseEstimator
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from bigsvm.sklearn import SVC, SVR, LinearSVC, LinearSVR, NuSVC, NuSVR, OneClassSVM

DENSE = "check_sample_weight_equivalence_on_dense_data"
SPARSE = "check_sample_weight_equivalence_on_sparse_data"

_LOOSE = "compares scores to 1e-7, and the default tol promises less; see test_weights_are_repetitions_at_a_tight_tol"
_GAMMA = "gamma='scale' is of the rows, however they are weighted: repeated rows have another variance"
_AT_ZERO = _GAMMA + "; and rows whose score is 0 but for rounding are of either label"
EXPECTED = {
    LinearSVC: {DENSE: _LOOSE, SPARSE: _LOOSE},
    LinearSVR: {},
    SVC: {DENSE: _GAMMA, SPARSE: _GAMMA},
    SVR: {DENSE: _GAMMA, SPARSE: _GAMMA},
    NuSVC: {
        DENSE: "its weights leave one class too few rows for nu = 0.5",
        SPARSE: "its weights leave one class too few rows for nu = 0.5",
        "check_class_weight_classifiers": "so do its weights of classes, which scikit-learn's NuSVC ignores",
    },
    NuSVR: {DENSE: _GAMMA, SPARSE: _GAMMA},
    OneClassSVM: {DENSE: _AT_ZERO, SPARSE: _AT_ZERO},
}
"""Checks that fail, and why: scikit-learn's own classes fail them too."""


@parametrize_with_checks(
    [LinearSVC(), LinearSVR(), SVC(), SVR(), NuSVC(), NuSVR(), OneClassSVM()],
    expected_failed_checks=lambda estimator: EXPECTED[type(estimator)],
)
@pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning", "ignore::sklearn.exceptions.SkipTestWarning"
)
def test_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("name", ["LinearSVC", "LinearSVR", "SVC", "SVR"])
@pytest.mark.parametrize("check", [DENSE, SPARSE])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_their_own_classes_fail_what_ours_do(name: str, check: str) -> None:
    with pytest.raises(AssertionError, match="sample_weight"):
        getattr(estimator_checks, check)(name, getattr(sklearn.svm, name)())


@pytest.mark.parametrize(
    "estimator",
    [
        LinearSVC(loss="hinge", tol=1e-9),
        LinearSVR(tol=1e-9),
        LinearSVR(loss="squared_epsilon_insensitive", tol=1e-9),
        SVC(kernel="linear", tol=1e-9),
        SVC(gamma=0.1, tol=1e-9),
        SVR(kernel="linear", tol=1e-9),
        SVR(gamma=0.1, tol=1e-9),
        NuSVR(gamma=0.1, tol=1e-9),
    ],
    ids=str,
)
def test_weights_are_repetitions_at_a_tight_tol(estimator: BaseEstimator) -> None:
    for check in (DENSE, SPARSE):
        getattr(estimator_checks, check)(type(estimator).__name__, estimator)


def test_their_tests_of_svms_pass_with_our_classes() -> None:
    script = Path(__file__).parents[2] / "scripts" / "sklearn_suite.py"
    done = subprocess.run([sys.executable, str(script), "--smoke"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
