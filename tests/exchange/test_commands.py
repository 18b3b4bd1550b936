"""`bigsvm export` and `bigsvm import`: files, and what the other commands make of an imported model."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import bigsvm as package
from bigsvm.csr import CSR
from bigsvm.errors import DataError
from bigsvm.model.linear_model import load_model
from bigsvm.problem.kernel import Kernel
from tests.cli.conftest import Bigsvm, bigsvm, model, store
from tests.exchange.made import KERNELS, csr, kernel, linear, rows

__all__ = ["bigsvm", "model", "store"]


def test_out_and_in_again_a_model_predicts_the_same_and_proves_what_it_can(
    bigsvm: Bigsvm, store: Path, model: Path, tmp_path: Path
) -> None:
    out = bigsvm("export", model, "-o", "m.txt", "--format", "liblinear", "--json")
    assert (out.code, out.document["result"]["format"]) == (0, "liblinear")
    assert out.document["result"]["bytes"] == (tmp_path / "m.txt").stat().st_size
    known = json.loads((model / "model.json").read_text())["problem"]
    made = bigsvm("import", "m.txt", "-o", "back", "--format", "liblinear", "-c", known["C"][0], "--json")
    assert made.code == 0
    document = json.loads((tmp_path / "back" / "model.json").read_text())
    assert document["certificate"] == {"kind": "none"}
    assert document["status"] == "imported"
    assert document["imported"]["program"] == "LIBLINEAR"
    assert document["imported"]["file"] == "m.txt"
    for path, name in ((model, "a"), (tmp_path / "back", "b")):
        assert bigsvm("predict", path, store, "-o", f"{name}.csv", "--scores").code == 0
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert bigsvm("evaluate", "back", store, "--json").document["result"]["accuracy"] > 0.5
    shown = bigsvm("inspect", "back")
    assert shown.code == 0
    assert "LIBLINEAR" in shown.out
    # The same w: the same objective, and a gap that is proved, if by a weaker bound.
    theirs, ours = (bigsvm("certify", path, store, "--json").document["result"] for path in (model, "back"))
    assert ours["objective"] == pytest.approx(theirs["objective"], rel=1e-9)
    assert ours["bound"].startswith("weaker bound")
    assert theirs["relative_gap"] <= ours["relative_gap"] < 1.0


def test_what_a_file_does_not_say_is_asked_for(bigsvm: Bigsvm, store: Path, tmp_path: Path) -> None:
    width = package.open_store(store).n_features
    head = f"nr_class 2\nlabel 1 -1\nnr_feature {width}\nbias -1\nw\n" + "0.5 \n" * width
    for kind, said in (
        ("L2R_L2LOSS_SVC", "import it again with the --c"),
        ("L2R_LR", "LIBLINEAR's L2R_LR, which solves"),
    ):
        (tmp_path / "m.txt").write_text(f"solver_type {kind}\n{head}")
        assert bigsvm("import", "m.txt", "back", "--format", "liblinear", "--overwrite").code == 0
        found = bigsvm("certify", "back", store)
        assert found.code == 65
        assert said in found.err
    package.export_model(kernel(KERNELS["rbf"], (-1, 1), "csr"), tmp_path / "k.txt", "libsvm")
    assert bigsvm("import", "k.txt", "k", "--format", "libsvm", "-c", 1, "--n-features", width).code == 0
    found = bigsvm("certify", "k", store)
    assert (found.code, "lacks the rows of support vectors" in found.err) == (65, True)
    assert bigsvm("inspect", "k").code == 0


def test_a_model_that_names_no_order_of_its_classes_is_refused(tmp_path: Path) -> None:
    for n, garbled in enumerate((5, {"label_order": 1}, {"label_order": [0, 0]}, {"label_order": [0, 1, 2, None]})):
        linear((1, 2, 3, 4), imported=garbled).save(tmp_path / str(n))
        with pytest.raises(DataError, match="lacks a valid 'imported'"):
            load_model(tmp_path / str(n))


def test_usage_and_outputs_are_held_to(bigsvm: Bigsvm, model: Path, tmp_path: Path) -> None:
    assert bigsvm("export", model).code == 2
    assert bigsvm("export", model, "a.npz", "-o", "b.npz").code == 2
    assert bigsvm("export", model, "a.txt").code == 2
    assert bigsvm("export", model, "a.npz").code == 0
    assert bigsvm("export", model, "a.npz").code == 73
    assert bigsvm("export", model, model / "coef.txt", "--format", "npz").code == 73
    assert bigsvm("export", "none", "b.npz").code == 66
    assert bigsvm("import", "none", "m", "--format", "libsvm").code == 66
    assert bigsvm("import", "a.npz", "m", "--format", "libsvm").code == 65
    (tmp_path / "a.txt").write_text("w\n")
    assert bigsvm("import", "a.txt", "m").code == 2
    assert bigsvm("import", "a.npz", "m", "-c", 1).code == 2
    assert bigsvm("import", "a.txt", "m", "--format", "npz").code == 65
    assert bigsvm("import", "none.npz", "m").code == 66
    assert not (tmp_path / "m").exists()


def test_a_model_may_go_to_standard_output_but_not_with_a_document(bigsvm: Bigsvm, model: Path, tmp_path: Path) -> None:
    said = bigsvm("export", model, "-", "--format", "liblinear")
    assert (said.code, said.out.splitlines()[0]) == (0, "solver_type L2R_L2LOSS_SVC_DUAL")
    assert bigsvm("export", model, "-", "--json", "--format", "liblinear").code == 2
    assert bigsvm("export", model, "-").code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_a_model_that_was_just_fitted_goes_out_as_the_saved_one(tmp_path: Path, layout: str) -> None:
    X = rows(90)
    y = np.where(X[:, 0] + X[:, 1] > 0, 1, -1)
    given = X if layout == "dense" else sparse.csr_array(X)
    result = package.fit((given, y), kernel="rbf", gamma=0.3, tol=1e-2, memory="32MiB")
    result.save_model(tmp_path / "m")
    for form in ("libsvm", "npz"):
        package.export_model(result.model, tmp_path / f"fresh.{form}", form)
        package.export_model(tmp_path / "m", tmp_path / f"saved.{form}", form)
    assert (tmp_path / "fresh.libsvm").read_bytes() == (tmp_path / "saved.libsvm").read_bytes()
    fresh, saved = (np.load(tmp_path / f"{name}.npz") for name in ("fresh", "saved"))
    assert set(fresh.files) == set(saved.files)
    for name in set(fresh.files) - {"about"}:
        np.testing.assert_array_equal(fresh[name], saved[name])


def test_an_open_file_is_written_to(tmp_path: Path) -> None:
    for form in ("liblinear", "npz"):
        made = io.BytesIO()
        package.export_model(linear((0, 1)), made, form)
        package.export_model(linear((0, 1)), tmp_path / form, form)
        assert made.getvalue() == (tmp_path / form).read_bytes()


def test_npz_is_plain_arrays_with_all_that_a_score_takes(tmp_path: Path) -> None:
    for made in (linear((1, 2, 3)), kernel(KERNELS["poly"], (1, 2, 3)), kernel(KERNELS["rbf"], ("a", "b"), "csr")):
        made.save(tmp_path / "m", overwrite=True)
        package.export_model(tmp_path / "m", tmp_path / "m.npz", overwrite=True)
        held = np.load(tmp_path / "m.npz", allow_pickle=False)
        assert held["classes"].tolist() == made.classes.tolist()
        about = json.loads(str(held["about"]))
        if held["kind"] == "linear":
            scores = rows() @ held["coef"].T
        else:
            if "support" in held.files:
                S = held["support"]
            else:
                S = np.zeros((len(held["support_rows"]), int(held["n_features"])))
                at = np.repeat(np.arange(len(S)), np.diff(held["support_indptr"]))
                S[at, held["support_indices"]] = held["support_data"]
            scores = Kernel.of_document(about["problem"]["kernel"]).matrix(rows(), S) @ held["dual_coef"].T
        found = np.squeeze(scores + held["intercept"])
        np.testing.assert_allclose(found, made.decision_function(rows()), rtol=1e-10, atol=1e-12)
    assert isinstance(load_model(tmp_path / "m").decision_function(CSR(*csr(rows()))), np.ndarray)


def test_npz_out_and_in_again_is_the_same_model(bigsvm: Bigsvm, store: Path, model: Path, tmp_path: Path) -> None:
    assert bigsvm("export", model, "m.npz").code == 0
    assert bigsvm("import", "m.npz", "back", "--json").document["result"]["format"] == "npz"
    old, new = (json.loads((folder / "model.json").read_text()) for folder in (model, tmp_path / "back"))
    assert {*old} - {*new} <= {"alpha_bytes"}
    for name in {*new} - {"digests", "digest"}:
        assert new[name] == old[name], name
    for name in ("coef.npy", "intercept.npy"):
        assert (tmp_path / "back" / name).read_bytes() == (model / name).read_bytes()
    theirs, ours = (bigsvm("certify", path, store, "--json").document["result"] for path in (model, "back"))
    assert ours["objective"] == theirs["objective"]
    assert bigsvm("import", "m.npz", "back").code == 73


def test_every_kind_of_model_comes_back_from_npz(tmp_path: Path) -> None:
    curves = [{"A": -1.0, "B": 0.5}] * 3
    scaled = {"scale": {"kind": "maxabs", "largest": [2.0, 3.0, 0.7, 1.0, 5.0]}, "features": list("abcde")}
    for made in (
        linear(()),
        linear(("a", "b", "c"), calibration={"method": "sigmoid", "curves": curves}, rows=scaled),
        linear((0.5, 1.5, 4.0), pairs=True, imported={"label_order": [2, 0, 1]}),
        kernel(KERNELS["rbf"], (False, True), "csr"),
        kernel(KERNELS["poly"], (1, 2, 3)),
        kernel(Kernel("precomputed"), (1, 2, 3)),
    ):
        package.export_model(made, tmp_path / "m.npz", overwrite=True)
        back = package.import_model(tmp_path / "m.npz")
        package.export_model(back, tmp_path / "n.npz", overwrite=True)
        assert (tmp_path / "n.npz").read_bytes() == (tmp_path / "m.npz").read_bytes()
        X = rows() if back.n_features == 5 else np.zeros((3, back.n_features))
        np.testing.assert_array_equal(back.decision_function(X), made.decision_function(X))
        assert back.predict(X).tolist() == made.predict(X).tolist()
        back.save(tmp_path / "m", overwrite=True)
        assert load_model(tmp_path / "m").about.get("calibration") == made.about.get("calibration")


def test_an_npz_that_is_no_model_is_refused_in_a_line(tmp_path: Path) -> None:
    package.export_model(kernel(KERNELS["rbf"], (1, 2, 3), "csr"), tmp_path / "m.npz")
    sound = dict(np.load(tmp_path / "m.npz"))
    garbled = {
        "lacks 'dual_coef'": {"dual_coef": None},
        "lacks 'about'": {"about": None},
        "not a JSON object": {"about": np.array("[]")},
        "Expecting property name": {"about": np.array("{")},
        "unknown kind of model 'tree'": {"kind": np.array("tree")},
        "do not belong to these classes": {"positive": sound["negative"]},
        "is float32, not float64": {"intercept": sound["intercept"].astype(np.float32)},
        "values that are not finite": {"dual_coef": sound["dual_coef"] * np.nan},
        "not in ascending order": {"classes": sound["classes"][::-1]},
        "pointers": {"support_indptr": sound["support_indptr"][::-1]},
        "row numbers": {"support_rows": sound["support_rows"][::-1]},
        "beyond": {"n_features": np.array(2)},
        "Object arrays cannot be loaded": {"classes": np.array([1, "a", None], object)},
    }
    for said, changes in garbled.items():
        arrays = {name: part for name, part in {**sound, **changes}.items() if part is not None}
        np.savez(tmp_path / "bad.npz", **arrays)
        with pytest.raises(DataError, match=said) as caught:
            package.import_model(tmp_path / "bad.npz")
        assert "bad.npz" in str(caught.value)
        assert "\n" not in str(caught.value)
    whole = (tmp_path / "m.npz").read_bytes()
    np.save(tmp_path / "one.npy", np.arange(3))
    for damaged in (
        whole[: len(whole) // 2],
        whole[:300] + b"!!" + whole[302:],
        b"",
        (tmp_path / "one.npy").read_bytes(),
    ):
        (tmp_path / "bad.npz").write_bytes(damaged)
        with pytest.raises(DataError):
            package.import_model(tmp_path / "bad.npz")


@pytest.mark.parametrize("form", ["liblinear", "libsvm"])
def test_probabilities_that_text_leaves_out_are_named_in_one_line(bigsvm: Bigsvm, tmp_path: Path, form: str) -> None:
    curve = {"A": -1.0, "B": 0.0}
    linear((0, 1), calibration={"method": "sigmoid", "curves": [curve]}).save(tmp_path / "m")
    said = bigsvm("export", "m", "m.txt", "--format", form)
    assert said.code == 0
    (line,) = said.err.splitlines()
    assert "probabilities (--calibrate sigmoid) are left out" in line
    assert len(bigsvm("export", "m", "n.txt", "--format", form, "--json").document["warnings"]) == 1
    linear((0, 1)).save(tmp_path / "plain")
    assert bigsvm("export", "plain", "p.txt", "--format", form).err == ""
    assert bigsvm("export", "m", "m.npz").err == ""
