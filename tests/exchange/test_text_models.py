"""Models as LIBLINEAR's and LIBSVM's text, and back: to the digits, in their order of labels, their ties included."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.cli.main import run
from bigsvm.errors import DataError, MissingInput, OutputError, UsageError
from bigsvm.model.linear_model import LinearModel
from bigsvm.problem.kernel import Kernel
from tests.exchange.made import CLASSES, KERNELS, D, csr, kernel, linear, rows
from tests.exchange.readers import liblinear_scores, libsvm_scores


def flat(scores: np.ndarray) -> np.ndarray:
    return scores if scores.ndim == 2 else scores[:, None]


@pytest.mark.parametrize("bias", [("augmented", 1.0), ("augmented", 3.0), ("none", 1.0), ("free", 1.0)])
@pytest.mark.parametrize("classes", CLASSES.values(), ids=CLASSES)
def test_liblinear_has_the_same_weights_and_labels(tmp_path: Path, classes: Any, bias: tuple[str, float]) -> None:
    loss = "hinge" if classes else "epsilon_insensitive"
    model = linear(classes, problem={"bias": bias[0], "bias_scale": bias[1], "loss": loss})
    if bias[0] == "none":
        model.intercept[:] = 0.0
    out = tmp_path / "m.txt"
    bigsvm.export_model(model, out, "liblinear")
    found, scores = liblinear_scores(out, rows())
    np.testing.assert_allclose(scores, flat(model.decision_function(rows())), rtol=1e-12, atol=1e-14)
    # Where two classes score 0, as an empty row without a bias does, both decide for the same one.
    np.testing.assert_allclose(found, model.predict(rows()), rtol=1e-12, atol=1e-14)
    back = bigsvm.import_model(out, "liblinear")
    assert isinstance(back, LinearModel)
    np.testing.assert_array_equal(back.coef, model.coef)
    np.testing.assert_array_equal(back.intercept, model.intercept)
    np.testing.assert_array_equal(back.classes, model.classes)


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("classes", CLASSES.values(), ids=CLASSES)
def test_libsvm_has_the_same_scores_and_labels(tmp_path: Path, classes: Any, name: str, layout: str) -> None:
    model = kernel(KERNELS[name], classes, layout)
    out = tmp_path / "m.txt"
    bigsvm.export_model(model, out, "libsvm")
    found, scores = libsvm_scores(out, rows())
    expected = flat(model.decision_function(rows()))
    np.testing.assert_allclose(scores, expected, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(found, model.predict(rows()), rtol=1e-11, atol=1e-12)
    back = bigsvm.import_model(out, "libsvm", n_features=D)
    np.testing.assert_allclose(flat(back.decision_function(rows())), expected, rtol=1e-11, atol=1e-12)
    np.testing.assert_array_equal(np.sort(back.dual_coef, axis=1), np.sort(model.dual_coef, axis=1))  # type: ignore[union-attr]
    np.testing.assert_array_equal(back.intercept, model.intercept)
    np.testing.assert_array_equal(back.classes, model.classes)


@pytest.mark.parametrize("classes", CLASSES.values(), ids=CLASSES)
def test_libsvm_takes_linear_models_of_pairs_and_given_kernels(tmp_path: Path, classes: Any) -> None:
    of_pairs = linear(classes, pairs=True)
    bigsvm.export_model(of_pairs, tmp_path / "pairs", "libsvm")
    np.testing.assert_allclose(
        libsvm_scores(tmp_path / "pairs", rows())[1], flat(of_pairs.decision_function(rows())), rtol=1e-12
    )
    back = bigsvm.import_model(tmp_path / "pairs", "libsvm")
    np.testing.assert_array_equal(back.decision_function(rows()), of_pairs.decision_function(rows()))
    given = kernel(Kernel("precomputed"), classes)
    values = np.random.default_rng(0).standard_normal((9, given.n_features))
    bigsvm.export_model(given, tmp_path / "given", "libsvm")
    expected = flat(given.decision_function(values))
    np.testing.assert_allclose(libsvm_scores(tmp_path / "given", values)[1], expected, rtol=1e-12, atol=1e-12)
    back = bigsvm.import_model(tmp_path / "given", "libsvm", n_features=given.n_features)
    np.testing.assert_allclose(flat(back.decision_function(values)), expected, rtol=1e-12, atol=1e-12)


LINEAR = "solver_type {kind}\nnr_class {k}\nlabel {labels}\nnr_feature 2\nbias {bias}\nw\n{w}"


def test_labels_in_any_order_and_ties_are_those_of_liblinear(tmp_path: Path) -> None:
    """Rows of 0, where nothing but the order of the labels decides."""
    file, X = tmp_path / "m", np.array([[0.0, 0.0], [1.0, -2.0], [-1.0, 1.0]])
    for kind, labels, w in (
        ("L2R_L2LOSS_SVC", "1 -1", "1 \n2 \n"),
        ("L2R_L2LOSS_SVC", "-1 1", "1 \n2 \n"),
        ("L2R_LR", "7 -2 4", "1 0 3\n0.5 1 -1 \n"),
        ("MCSVM_CS", "4 7 -2", "1 1 1\n2 2 2\n"),
    ):
        file.write_text(LINEAR.format(kind=kind, k=len(labels.split()), labels=labels, bias=-1, w=w))
        model = bigsvm.import_model(file, "liblinear")
        np.testing.assert_array_equal(model.predict(X), liblinear_scores(file, X)[0])
        again = tmp_path / "again"
        bigsvm.export_model(model, again, "liblinear", overwrite=True)
        np.testing.assert_array_equal(liblinear_scores(again, X)[0], model.predict(X))


def test_labels_in_any_order_and_ties_are_those_of_libsvm(tmp_path: Path) -> None:
    """Three pairs that beat each other in a circle, scores of 0, and probabilities, which are left out."""
    file, X = tmp_path / "m", np.array([[0.0], [1.0], [-1.0], [0.5]])
    for labels in ("1 2 3", "3 1 2", "2 3 1", "3 2 1"):
        file.write_text(
            "svm_type nu_svc\nkernel_type linear\nnr_class 3\ntotal_sv 3\nrho 0 0 0\n"
            f"label {labels}\nprobA 1 1 1\nprobB 0 0 0\nnr_sv 1 1 1\nSV\n"
            "1 -1 1:1 \n0 1 1:1 \n0 0 1:1\n"
        )
        model = bigsvm.import_model(file, "libsvm")
        np.testing.assert_array_equal(model.predict(X), libsvm_scores(file, X)[0])
        assert "probabilities" in model.about["imported"]["warnings"][0]
        again = tmp_path / "again"
        bigsvm.export_model(model, again, "libsvm", overwrite=True)
        np.testing.assert_array_equal(libsvm_scores(again, X)[0], model.predict(X))


def test_nu_svc_whose_r_is_negative_goes_back_to_libsvm(tmp_path: Path) -> None:
    """It turns the signs of a pair's coefficients: the class of a vector is the one in all of its pairs."""
    X, file, again = rows(), tmp_path / "m", tmp_path / "again"
    model = kernel(KERNELS["rbf"], CLASSES["four"])
    for turned in itertools.product([1.0, -1.0], repeat=6):
        model.dual_coef[:] = kernel(KERNELS["rbf"], CLASSES["four"]).dual_coef * np.array(turned)[:, None]
        bigsvm.export_model(model, file, "libsvm", overwrite=True)
        np.testing.assert_allclose(libsvm_scores(file, X)[1], model.decision_function(X), rtol=1e-11, atol=1e-12)
        back = bigsvm.import_model(file, "libsvm", n_features=D)
        bigsvm.export_model(back, again, "libsvm", overwrite=True)
        np.testing.assert_allclose(libsvm_scores(again, X)[1], model.decision_function(X), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("program", ["liblinear", "libsvm"])
def test_text_has_the_digits_that_it_has_there(tmp_path: Path, program: str) -> None:
    """Dates as numbers: float32 would round them."""
    file, text = tmp_path / "m", tmp_path / "rows.svm"
    X = 20240100.0 + np.arange(30)[:, None]
    if program == "liblinear":
        file.write_text(LINEAR.format(kind="L2R_L2LOSS_SVC", k=2, labels="1 -1", bias=1, w="1 \n0 \n-20240115.5 \n"))
    else:
        file.write_text(
            "svm_type c_svc\nkernel_type linear\nnr_class 2\ntotal_sv 1\nrho 20240115.5\n"
            "label 1 -1\nnr_sv 1 0\nSV\n1 1:1 \n"
        )
    text.write_text("".join(f"1 1:{int(x)}\n" for x in X[:, 0]))
    bigsvm.import_model(file, program).save(tmp_path / "model")
    assert run(["predict", str(tmp_path / "model"), str(text), "-o", str(tmp_path / "out.csv"), "--scores"]) == 0
    said = np.loadtxt(tmp_path / "out.csv", delimiter=",")
    np.testing.assert_array_equal(said[:, 1], X[:, 0] - 20240115.5)
    np.testing.assert_array_equal(said[:, 0], np.where(X[:, 0] > 20240115.5, 1, -1))


def test_real_programs_predict_the_same(tmp_path: Path) -> None:
    liblinear = pytest.importorskip("liblinear.liblinearutil")
    libsvm = pytest.importorskip("libsvm.svmutil")
    X = rows()
    as_theirs = [{j + 1: float(v) for j, v in enumerate(row)} for row in X]
    for n, classes in enumerate(CLASSES.values()):
        out = str(tmp_path / f"{n}")
        model: Any = linear(classes)
        bigsvm.export_model(model, out, "liblinear")
        labels, _, scores = liblinear.predict([], as_theirs, liblinear.load_model(out), "-q")
        np.testing.assert_array_equal(labels, model.predict(X))
        np.testing.assert_allclose(scores, flat(model.decision_function(X)), rtol=1e-12)
        for name in KERNELS:
            model = kernel(KERNELS[name], classes, "csr")
            bigsvm.export_model(model, out, "libsvm", overwrite=True)
            labels, _, scores = libsvm.svm_predict([0] * len(X), as_theirs, libsvm.svm_load_model(out), "-q")
            if classes:
                np.testing.assert_array_equal(labels, model.predict(X))
            np.testing.assert_allclose(scores, flat(model.decision_function(X)), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    ("model", "form", "said"),
    [
        (linear((1, 2, 3)), "libsvm", 'format="liblinear"'),
        (linear((1, 2, 3), pairs=True), "liblinear", 'format="libsvm"'),
        (kernel(KERNELS["rbf"], (0, 1)), "liblinear", 'format="libsvm"'),
        (linear(("no", "yes")), "liblinear", "have integers"),
        (linear((0.5, 1.5)), "libsvm", "have integers"),
        (linear((False, True)), "liblinear", "have integers"),
        (linear((1, 2**40)), "libsvm", "have integers"),
        (linear((0, 1), rows={"scale": {"kind": "unit-norm"}}), "liblinear", "scales its rows"),
        (linear((0, 1), rows={"normalize": ["log1p"]}), "liblinear", "'normalize' first"),
        (linear((0, 1), rows={"normalize": ["log1p"]}), "libsvm", "'normalize' first"),
        (linear((0, 1)), None, "has no suffix that names a format"),
        (linear((0, 1)), "pmml", "unknown format"),
    ],
)
def test_what_a_format_cannot_hold_is_refused_and_nothing_is_left(
    tmp_path: Path, model: Any, form: Any, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        bigsvm.export_model(model, tmp_path / "out", form)
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_exists_stays(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(OutputError, match="exists"):
        bigsvm.export_model(linear((0, 1)), tmp_path / "out", "liblinear")
    assert (tmp_path / "out").read_text() == "mine"


GOOD = LINEAR.format(kind="L2R_L2LOSS_SVC", k=2, labels="1 -1", bias=1, w="1 \n2 \n3 \n")
SVM = (
    "svm_type c_svc\nkernel_type rbf\ngamma 0.5\nnr_class 2\ntotal_sv 2\nrho 0.5\nlabel 1 -1\nnr_sv 1 1\nSV\n"
    "1 1:2 3:1 \n-1 2:1 \n"
)


@pytest.mark.parametrize(
    ("form", "old", "new", "said"),
    [
        ("liblinear", "w\n", "", "line 6 begins with '1'"),
        ("liblinear", "bias 1\nw\n1 \n2 \n3 \n", "", "no line 'w'"),
        ("liblinear", "3 \n", "", "2 of 3 rows of weights"),
        ("liblinear", "3 \n", "3 \n4\n", "line 10 comes after the 3 rows"),
        ("liblinear", "2 \n", "x \n", "line 8 has weights that are not numbers"),
        ("liblinear", "2 \n", "1_0 \n", "line 8 has weights that are not numbers"),
        ("liblinear", "1 -1", "1_0 -1", "different integers"),
        ("libsvm", "gamma 0.5", "gamma 1_0", "does not have its kernel"),
        ("liblinear", "2 \n", "nan \n", "line 8 has 1 numbers"),
        ("liblinear", "2 \n", "2 2 \n", "line 8 has 2 numbers"),
        ("liblinear", "1 -1", "1 1", "different integers"),
        ("liblinear", "1 -1", "1 b", "different integers"),
        ("liblinear", "nr_class 2", "nr_class 3", "'label' with 3"),
        ("liblinear", "nr_feature 2", "nr_feature 99999999999", "has no valid number"),
        ("liblinear", "nr_feature 2", "nr_feature -1", "has no valid number"),
        ("liblinear", "nr_feature 2\n", "", "no line 'nr_feature"),
        ("liblinear", "SVC", "PCA", "solver_type"),
        ("liblinear", "nr_class", "what", "line 2 begins with 'what'"),
        ("liblinear", "nr_class 2\n", "nr_class 2\nnr_class 2\n", "comes twice"),
        ("liblinear", "nr_class", "é", "line 2 is not text"),
        ("libsvm", "c_svc", "two_class", "svm_type two_class"),
        ("libsvm", "rbf", "laplace", "does not have its kernel"),
        ("libsvm", "gamma 0.5", "gamma -1", "does not have its kernel"),
        ("libsvm", "total_sv 2", "total_sv 3", "add up to total_sv 3"),
        ("libsvm", "nr_sv 1 1", "nr_sv 1.5 0.5", "add up"),
        (
            "libsvm",
            "total_sv 2\nrho 0.5\nlabel 1 -1\nnr_sv 1 1",
            "total_sv 2000000000\nrho 0.5\nlabel 1 -1\nnr_sv 1000000000 1000000000",
            "2 of 2000000000 support vectors",
        ),
        (
            "libsvm",
            "rbf\ngamma 0.5\nnr_class 2\ntotal_sv 2\nrho 0.5\nlabel 1 -1\nnr_sv 1 1\nSV\n1 1:2 3:1",
            "linear\nnr_class 2\ntotal_sv 2\nrho 0.5\nlabel 1 -1\nnr_sv 1 1\nSV\n1 1:2 9999999999:1",
            "more than a linear model",
        ),
        ("libsvm", "rho 0.5", "rho", "0 numbers as rho"),
        ("libsvm", "-1 2:1 \n", "", "1 of 2 support vectors"),
        ("libsvm", "2:1", "0:1", "index 0"),
        ("libsvm", "3:1", "1:1", "line 10 has '1:1'"),
        ("libsvm", "3:1", "3-1", "line 10 has '3-1'"),
        ("libsvm", "3:1", "3:inf", "line 10 has 2 numbers as values"),
    ],
)
def test_bad_files_are_refused_by_line(tmp_path: Path, form: Any, old: str, new: str, said: str) -> None:
    good, file = {"liblinear": GOOD, "libsvm": SVM}[form], tmp_path / "m"
    file.write_text(good)
    assert bigsvm.import_model(file, form).n_models == 1
    file.write_text(good.replace(old, new, 1))
    with pytest.raises(DataError, match=said) as raised:
        bigsvm.import_model(file, form)
    assert str(file) in str(raised.value)


def test_what_makes_no_sense_of_a_sound_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m").write_text(SVM)
    with pytest.raises(UsageError, match="3 features, and 2 were asked"):
        bigsvm.import_model(tmp_path / "m", "libsvm", n_features=2)
    with pytest.raises(UsageError, match="C must be a positive number"):
        bigsvm.import_model(tmp_path / "m", "libsvm", C=0.0)
    with pytest.raises(UsageError, match="epsilon is for a regression"):
        bigsvm.import_model(tmp_path / "m", "libsvm", epsilon=0.1)
    with pytest.raises(DataError, match="'svm_type', which is unknown"):
        bigsvm.import_model(tmp_path / "m", "liblinear")
    for missing in (tmp_path / "none", tmp_path):
        with pytest.raises(MissingInput):
            bigsvm.import_model(missing, "libsvm")
    wide = bigsvm.import_model(tmp_path / "m", "libsvm", n_features=9)
    assert wide.decision_function(np.zeros((1, 9))) == pytest.approx(np.exp(-2.5) - np.exp(-0.5) - 0.5)
    assert wide.decision_function(csr(np.eye(9))).shape == (9,)
