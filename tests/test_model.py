"""Models on disk: round trip, digests, refusal of what is foreign, damaged or newer."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import bigsvm
from bigsvm import predictor
from bigsvm.errors import DataError, MissingInput, OutputError
from bigsvm.files import atomic
from bigsvm.model.linear_model import LinearModel, load_alpha, load_model
from bigsvm.testing.problems import random_problem
from tests.full_disk import files_of_at_most
from tests.model_documents import renew, rewrite
from tests.registry.made import make_kernel_model


def model(n_models: int = 1) -> LinearModel:
    rng = np.random.default_rng(1)
    classes = np.array([-1, 1]) if n_models == 1 else np.arange(n_models)
    about = {"problem": {"loss": "hinge"}}
    return LinearModel(rng.standard_normal((n_models, 4)), rng.standard_normal(n_models), classes, about)


@pytest.mark.parametrize("n_models", [1, 3])
def test_round_trip(tmp_path: Path, n_models: int) -> None:
    made, alpha = model(n_models), np.random.default_rng(2).uniform(size=(n_models, 6))
    made.save(tmp_path / "m", alpha)
    back = load_model(tmp_path / "m")
    np.testing.assert_array_equal(back.coef, made.coef)
    np.testing.assert_array_equal(back.intercept, made.intercept)
    assert back.classes.tolist() == made.classes.tolist()
    assert back.about["problem"] == {"loss": "hinge"}
    saved = load_alpha(tmp_path / "m", back)
    np.testing.assert_array_equal(saved, alpha)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m"]


def test_string_classes_and_predictions(tmp_path: Path) -> None:
    made = LinearModel(np.array([[1.0, -1.0]]), np.array([0.5]), np.array(["no", "yes"]))
    made.save(tmp_path / "m")
    back = load_model(tmp_path / "m")
    X = np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.5]])
    assert back.predict(X).tolist() == ["yes", "no", "no"]  # a score of 0 is the negative class
    np.testing.assert_allclose(back.decision_function(sparse.csr_array(X)), [1.5, -1.5, 0.0])


def test_sparse_rows_may_have_fewer_features_and_not_more() -> None:
    made = model()
    X = np.ones((2, 3))
    padded = np.hstack([X, np.zeros((2, 1))])
    np.testing.assert_allclose(made.decision_function(sparse.csr_array(X)), made.decision_function(padded))
    with pytest.raises(DataError, match="3 features"):
        made.decision_function(X)
    with pytest.raises(DataError, match="5 features"):
        made.decision_function(np.ones((2, 5)))
    with pytest.raises(DataError, match=r"row 1.*feature 6"):
        made.decision_function(sparse.csr_array(([1.0, 1.0], ([0, 1], [2, 6])), shape=(2, 7)))


def test_an_existing_model_is_kept_unless_overwrite(tmp_path: Path) -> None:
    model().save(tmp_path / "m")
    with pytest.raises(OutputError, match="exists"):
        model().save(tmp_path / "m")
    model(3).save(tmp_path / "m", overwrite=True)
    assert load_model(tmp_path / "m").n_models == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m"]


@pytest.mark.parametrize("limit", [50, 40_000])
def test_a_disk_that_becomes_full_within_an_array_is_told_with_its_reason(limit: int, tmp_path: Path) -> None:
    """It said `7984 requested and 4984 written`, and not that the disk is full."""
    wide = LinearModel(np.ones((1, 8000)), np.zeros(1), np.array([-1, 1]))
    said = f"cannot write: {os.strerror(errno.EFBIG)}, [0-9]+ bytes needed"
    with files_of_at_most(limit), pytest.raises(OutputError, match=said):
        wide.save(tmp_path / "m")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["coef.npy", "intercept.npy", "alpha.npy"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_damage_is_refused_by_name(tmp_path: Path, name: str, damage: str) -> None:
    model().save(tmp_path / "m", np.ones((1, 5)))
    path = tmp_path / "m" / name
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[-3] ^= 1
        path.write_bytes(content)
    elif damage == "truncate":
        path.write_bytes(content[:-8])
    else:
        path.unlink()
    with pytest.raises(DataError, match=name.replace(".", r"\.")):
        load_alpha(tmp_path / "m", load_model(tmp_path / "m"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format_version": 99}, "newer"),
        ({"format_version": "x"}, "newer"),
        ({"format": "other"}, "not a bigsvm model"),
        ({"n_features": 7}, "do not fit"),
        ({"digests": {}}, "lacks"),
        ({"classes": [1]}, "are not a valid model"),
        ({"n_features": 0}, "are not a valid model"),
    ],
)
def test_foreign_documents_are_refused(tmp_path: Path, change: dict, words: str) -> None:
    model().save(tmp_path / "m")
    rewrite(tmp_path / "m", **change)
    with pytest.raises(DataError, match=words):
        load_model(tmp_path / "m")


def test_no_model_and_no_json(tmp_path: Path) -> None:
    with pytest.raises(MissingInput):
        load_model(tmp_path / "nothing")
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model.json").write_text("{")
    with pytest.raises(DataError, match="not JSON"):
        load_model(tmp_path / "m")
    (tmp_path / "m" / "model.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(DataError, match="not JSON"):
        load_model(tmp_path / "m")


def test_a_pickle_in_the_place_of_an_array_is_refused(tmp_path: Path) -> None:
    model().save(tmp_path / "m")
    path = tmp_path / "m" / "coef.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    renew(tmp_path / "m", "coef.npy")
    with pytest.raises(DataError, match="not a plain array"):
        load_model(tmp_path / "m")


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_file_of_a_model_that_may_not_be_read_is_missing_input(
    tmp_path: Path, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a store: nothing is known of what it holds, so it is not called damaged."""
    if kernel == "linear":
        made = model()
        made.about.update(rows={"features": list("abcd")})
        made.about.update(calibration={"method": "sigmoid", "curves": [{"A": -1.0, "B": 0.0}]})
        made.save(tmp_path / "m", np.ones((1, 6)))
    else:
        make_kernel_model(tmp_path / "m", "classes")
    names = sorted(path.name for path in (tmp_path / "m").iterdir())
    assert {"alpha.npy", "model.json"} < set(names)
    assert kernel != "linear" or {"rows.json", "calibration.json"} < set(names)
    opened = atomic.open_regular
    for name in names:

        def refused(path: Path, name: str = name) -> int:
            if Path(path).name == name:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return opened(path)

        monkeypatch.setattr(atomic, "open_regular", refused)
        with pytest.raises(MissingInput, match="cannot be read: Permission denied") as caught:
            load_alpha(tmp_path / "m", load_model(tmp_path / "m"))
        assert caught.value.where == str(tmp_path / "m" / name)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_no_file_of_a_model_is_a_link_to_elsewhere(tmp_path: Path, kernel: str) -> None:
    """What is there would change with what lies elsewhere, and a digest is only looked at when it is read."""
    if kernel == "linear":
        model().save(tmp_path / "m", np.ones((1, 6)))
    else:
        make_kernel_model(tmp_path / "m", "classes")
    names = sorted(path.name for path in (tmp_path / "m").iterdir())
    assert {"alpha.npy", "model.json"} < set(names)
    for name in names:
        (tmp_path / "m" / name).rename(tmp_path / name)
        (tmp_path / "m" / name).symlink_to(tmp_path / name)
        with pytest.raises(DataError, match="links out of the model"):
            load_model(tmp_path / "m")
        (tmp_path / "m" / name).unlink()
        (tmp_path / name).rename(tmp_path / "m" / name)
    (tmp_path / "link").symlink_to("m")  # of the folder itself: `current` of a registry is one
    (tmp_path / "m" / "inside").symlink_to("model.json")
    assert load_model(tmp_path / "link").n_features in (4, 6)


def test_columns_of_a_frame_go_by_their_names(tmp_path: Path) -> None:
    """As those of a table do: a frame with its columns in another order was scored by their places."""
    X, y = random_problem(80, 4, seed=5)
    frame = pd.DataFrame(X, columns=list("abcd"))
    result = bigsvm.fit(frame, y)
    result.save_model(tmp_path / "m")
    loaded, light = bigsvm.load_model(tmp_path / "m"), predictor.load(tmp_path / "m")
    wanted = result.model.decision_function(X)
    for model in (result.model, loaded, light):
        numbered = frame.rename(columns=dict(zip("abcd", range(4), strict=True)))
        for other in (frame, frame[list("dcba")], frame.assign(e=1.0), numbered):
            np.testing.assert_array_equal(model.decision_function(other), wanted)
        with pytest.raises(DataError, match="no column 'b'"):
            model.predict(frame.rename(columns={"b": "z"}))
    nameless = bigsvm.fit(X, y).model
    np.testing.assert_array_equal(nameless.decision_function(frame), wanted)
