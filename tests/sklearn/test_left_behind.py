"""What a fit leaves behind: warnings, output, files and pickles."""

from __future__ import annotations

import contextlib
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import bigsvm.sklearn
from bigsvm.run.fit import scales
from bigsvm.sklearn import SVC, LinearSVC, LinearSVR
from tests.sklearn.estimators import ALL, fitted, rows, scores


@pytest.mark.parametrize("estimator", [LinearSVC(loss="hinge", max_iter=1), LinearSVR(max_iter=1)], ids=str)
def test_a_fit_that_is_cut_short_warns_with_its_gap(estimator: Any) -> None:
    X, y = rows(n=300)
    with pytest.warns(ConvergenceWarning, match=r"max_iter=1.*relative duality gap is") as seen:
        estimator.fit(X, y)
    assert estimator.relative_gap_ > estimator.tol / 100
    assert f"{estimator.relative_gap_:.2g}" in str(seen[0].message)
    assert seen[0].filename == __file__


@pytest.mark.parametrize("kind", ["long", "unscaled", "ordinary", "small"])
@pytest.mark.parametrize(
    "estimator",
    [LinearSVC(loss="hinge", max_iter=1), LinearSVC(loss="hinge"), LinearSVR(max_iter=1), SVC(max_iter=1)],
    ids=str,
)
def test_long_training_is_warned_of_before_it_begins(
    estimator: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only in the warning after a fit that failed; small rows are trained at once, whatever their scales are."""
    if kind != "small":
        monkeypatch.setattr(scales, "_MUCH", 1e3)
    X, y = rows(n=60, n_classes=2)
    X = X.astype(np.float32) * np.float32(1e3 if kind == "long" else 1.0)
    if kind in ("unscaled", "small"):
        X[:, 1] *= 1e5
    of_rows = kind == "long" and not isinstance(estimator, SVC)  # C |x|^2 says nothing of a kernel
    foretold = of_rows or (kind == "unscaled" and not isinstance(estimator, LinearSVR))  # another method takes over
    found = clone(estimator)
    with pytest.warns() if foretold or estimator.max_iter == 1 else contextlib.nullcontext([]) as seen:
        found.fit(X, y)
    about = [one for one in seen if "scale" in str(one.message) and "columns differ" in str(one.message)]
    about += [one for one in seen if "rows are long for C" in str(one.message)]
    if foretold:
        assert [(one.category, one.filename) for one in about] == [(UserWarning, __file__)]
        assert seen[0] is about[0]  # before the one of a fit that failed
        found = clone(estimator)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            with pytest.raises(UserWarning, match=r"rows are long|columns differ in scale"):
                found.fit(X, y)
        assert not hasattr(found, "coef_")
    else:
        assert all(one.category is ConvergenceWarning for one in about)


def test_steps_of_svc_are_bounded() -> None:
    X, y = rows(n=1500, n_classes=2)
    with pytest.warns(ConvergenceWarning, match=r"terminated early \(max_iter=10\).*relative duality gap"):
        found = SVC(max_iter=10, C=1000.0, gamma=1.0).fit(X, y)
    assert found.fit_status_ == 1
    assert SVC().fit(X, y).fit_status_ == 0


@pytest.mark.parametrize("estimator", ALL, ids=str)
def test_pickles_are_arrays_and_small(estimator: Any) -> None:
    X, y = rows(n=60, d=1000, n_classes=2)
    sparse = scipy.sparse.csr_array(X * (np.random.default_rng(1).random(X.shape) > 0.9))
    found = fitted(estimator, sparse, y)
    saved = pickle.dumps(found)
    assert len(saved) < 100_000
    np.testing.assert_array_equal(scores(pickle.loads(saved), sparse), scores(found, sparse))


@pytest.mark.parametrize(
    ("module", "name"),
    [("linear", "LinearSVC"), ("linear", "LinearSVR"), ("svm", "SVC"), ("svm", "SVR"),
     ("nu_svm", "NuSVC"), ("nu_svm", "NuSVR"), ("nu_svm", "OneClassSVM")],
)  # fmt: skip
def test_pickles_of_earlier_versions_find_their_class(module: str, name: str) -> None:
    """A pickle names the module that the class was in when it was written."""
    assert pickle.loads(f"cbigsvm.sklearn.{module}\n{name}\n.".encode()) is getattr(bigsvm.sklearn, name)


@pytest.mark.parametrize("estimator", ALL, ids=str)
def test_nothing_is_printed_and_nothing_left(
    estimator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    here, scratch = tmp_path / "here", tmp_path / "scratch"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("BIGSVM_SCRATCH", str(scratch))
    X, y = rows()
    found = fitted(estimator, X, y)
    found.predict(X)
    found.score(X, y)
    assert capfd.readouterr() == ("", "")
    assert list(here.iterdir()) == []
    assert not scratch.exists() or list(scratch.iterdir()) == []


def test_verbose_tells_of_certificates_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    X, y = rows()
    LinearSVC(verbose=1).fit(X, y)
    out, err = capfd.readouterr()
    assert out == ""
    assert "relative gap" in err
