"""Promotions: whole models are copied and become current, and what is bad never does."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from bigsvm.errors import BigSVMError, DataError, MissingInput
from bigsvm.model import versions as registry
from bigsvm.model.linear_model import load_model
from bigsvm.model.model_files import model_fingerprint
from tests.registry.made import SPOILT, make_kernel_model, make_model, spoil_size, tree


def test_promote_copies_and_points(tmp_path: Path) -> None:
    root, model = tmp_path / "reg", make_model(tmp_path / "m")
    assert registry.current(root) is None
    assert registry.history(root) == []
    assert registry.promote(root, model, "first", metrics={"accuracy": 0.9}) == 1
    assert os.readlink(root / "current") == "versions/000001"
    assert tree(root / "current") == tree(model)
    (entry,) = registry.history(root)
    assert (entry["action"], entry["version"], entry["from"], entry["note"]) == ("promote", 1, None, "first")
    assert entry["metrics"] == {"accuracy": 0.9}
    assert entry["model_fingerprint"] == model_fingerprint(model)
    shutil.rmtree(model)
    where = registry.current(root)
    assert where is not None
    assert load_model(where).intercept[0] == 0.0


def test_the_registry_may_move(tmp_path: Path) -> None:
    registry.promote(tmp_path / "reg", make_model(tmp_path / "m"))
    os.rename(tmp_path / "reg", tmp_path / "elsewhere")
    assert load_model(tmp_path / "elsewhere" / "current").n_features == 6


def test_only_what_the_model_names_is_copied(tmp_path: Path) -> None:
    model = make_model(tmp_path / "m")
    (model / "core.dump").write_bytes(b"x" * 100)
    registry.promote(tmp_path / "reg", model)
    assert set(tree(tmp_path / "reg" / "current")) == {"model.json", "coef.npy", "intercept.npy", "alpha.npy"}


@pytest.mark.parametrize("name", SPOILT)
def test_bad_models_are_never_promoted(tmp_path: Path, name: str) -> None:
    root = tmp_path / "reg"
    registry.promote(root, make_model(tmp_path / "good"))
    before = tree(root)
    bad = make_model(tmp_path / "bad", seed=1)
    SPOILT[name](bad)
    with pytest.raises((DataError, MissingInput)) as caught:
        registry.promote(root, bad)
    assert caught.value.where
    assert tree(root) == before
    assert os.readlink(root / "current") == "versions/000001"


def test_another_shape_is_promoted_where_it_is_meant(tmp_path: Path) -> None:
    root = tmp_path / "reg"
    registry.promote(root, make_model(tmp_path / "a"))
    assert registry.promote(root, make_model(tmp_path / "b", n_features=9), allow_other_shape=True) == 2


def test_what_was_compared_with_another_model_is_not_promoted(tmp_path: Path) -> None:
    root = tmp_path / "reg"
    model = make_model(tmp_path / "a")
    assert registry.promote(root, model, over=None) == 1
    for over in (None, 2):
        with pytest.raises(registry.CurrentMoved, match="version 1 is current now"):
            registry.promote(root, model, over=over)
    assert registry.promote(root, model, over=1) == 2
    assert [path.name for path in sorted((root / "versions").iterdir())] == ["000001", "000002"]


def test_kernel_models_and_regression_are_promoted_whole(tmp_path: Path) -> None:
    kernel, values = (make_kernel_model(tmp_path / kind, kind) for kind in ("kernel", "regression"))
    registry.promote(tmp_path / "r", make_model(tmp_path / "linear"))
    assert registry.promote(tmp_path / "r", kernel) == 2  # of the same classes and features
    current = registry.current(tmp_path / "r")
    assert current is not None
    assert tree(current) == tree(kernel)
    with pytest.raises(DataError, match="gives values and the current one labels"):
        registry.promote(tmp_path / "r", values)
    assert registry.promote(tmp_path / "r", values, allow_other_shape=True) == 3
    assert load_model(tmp_path / "r" / "current").regression


@pytest.mark.parametrize("name", ["support.npy", "dual_coef.npy", "support_rows.npy"])
def test_a_damaged_kernel_model_is_not_promoted(tmp_path: Path, name: str) -> None:
    bad = make_kernel_model(tmp_path / "m", "kernel")
    spoil_size(bad, name, 140, fix=True)
    with pytest.raises(DataError):
        registry.promote(tmp_path / "r", bad)
    assert registry.current(tmp_path / "r") is None


def test_a_read_only_registry_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BigSVMError) as caught:
        registry.promote(tmp_path / "file", make_model(tmp_path / "m"))
    assert caught.value.code == 73
