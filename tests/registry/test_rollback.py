"""Rollbacks: an earlier version becomes current again, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from bigsvm.errors import DataError, MissingInput
from bigsvm.model import versions as registry
from tests.registry.made import make_model, tree


def test_rollback_goes_back_step_by_step_and_byte_for_byte(tmp_path: Path) -> None:
    root = tmp_path / "reg"
    models = [make_model(tmp_path / f"m{seed}", seed) for seed in range(3)]
    for model in models:
        registry.promote(root, model)
    assert registry.rollback(root, note="worse on Sundays") == 2
    assert tree(root / "current") == tree(models[1])
    assert registry.rollback(root) == 1
    assert tree(root / "current") == tree(models[0])
    with pytest.raises(MissingInput, match="no earlier version"):
        registry.rollback(root)
    assert registry.rollback(root, to=3) == 3
    assert tree(root / "current") == tree(models[2])
    with pytest.raises(MissingInput, match="no version 9"):
        registry.rollback(root, to=9)
    # Numbers are never used again, and 3 came after 1.
    assert registry.promote(root, models[1]) == 4
    assert registry.rollback(root) == 3
    actions = [(entry["action"], entry["version"], entry["from"]) for entry in registry.history(root)]
    assert actions[3:] == [
        ("rollback", 2, 3), ("rollback", 1, 2), ("rollback", 3, 1), ("promote", 4, 3), ("rollback", 3, 4)
    ]  # fmt: skip


def test_rollback_refuses_a_damaged_version(tmp_path: Path) -> None:
    root = tmp_path / "reg"
    for seed in range(2):
        registry.promote(root, make_model(tmp_path / f"m{seed}", seed))
    file = root / "versions" / "000001" / "coef.npy"
    file.chmod(0o644)
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(DataError, match="digest"):
        registry.rollback(root)
    assert registry.current_version(root) == 2


def test_rollback_without_a_registry(tmp_path: Path) -> None:
    with pytest.raises(MissingInput):
        registry.rollback(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
