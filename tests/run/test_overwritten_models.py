"""A model that is overwritten in place, as `cp -r new.model/. model/` does, while a command uses it.

The command works with the model that it opened, or refuses; never with a mixture of two, and without a bus error.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigsvm as package
from bigsvm import predictor
from bigsvm.errors import DataError
from bigsvm.model import linear_model
from bigsvm.model.kernel_model import KernelModel
from bigsvm.model.linear_model import load_alpha, load_model
from bigsvm.model.versions.whole_models import check_model
from tests.cli.conftest import Bigsvm, bigsvm
from tests.products import pairs_of

__all__ = ["bigsvm"]

KINDS = ["linear", "rbf", "csr", "precomputed"]
COMMANDS: dict[str, list[str]] = {
    "predict": ["predict", "m.model", "rows.zarr", "-o", "found", "--format", "csv", "--scores", "--json"],
    "predict in blocks": ["predict", "m.model", "rows.zarr", "-o", "found", "--format", "parquet", "--memory", "24MiB"],
    "evaluate": ["evaluate", "m.model", "rows.zarr", "--json"],
    "certify": ["certify", "m.model", "rows.zarr", "--json"],
    "inspect": ["inspect", "m.model", "--json"],
    "npz": ["export", "m.model", "found.npz"],
    "libsvm": ["export", "m.model", "found", "--format", "libsvm"],
    "onnx": ["export", "m.model", "found.onnx"],
    "warm start": ["fit", "rows.zarr", "-o", "new.model", "--warm-start", "m.model", "--json"],
}
OPENED = {kind: "read_saved_linear" if kind == "linear" else "read_kernel_model" for kind in KINDS}
"""The function that has opened all arrays but alpha when it returns."""
UNSTEADY = ("seconds", "memory", "compile_seconds", "bytes")
"""Entries of results that differ from call to call, or tell of the folder as it is now."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For each kind: rows, a model of them, another of the same size, and a smaller one."""
    folder = tmp_path_factory.mktemp("models")
    rng = np.random.default_rng(5)
    for kind in KINDS:
        X = rng.standard_normal((240, 6)).astype(np.float32)
        y = (X[:, 0] + X[:, 1] ** 2 + 0.3 * rng.standard_normal(240) > 1.0).astype(int)
        few = X[:150]
        if kind == "precomputed":
            X, few = (np.exp(-0.2 * ((A[:, None] - A[None]) ** 2).sum(axis=2)) for A in (X, few))
        rows: Any = sparse.csr_array(X) if kind == "csr" else X
        options = (
            {"loss": "hinge"} if kind == "linear" else {"kernel": "precomputed" if kind == "precomputed" else "rbf"}
        )
        package.ingest((rows, y), folder / kind / "rows.zarr")
        package.fit(folder / kind / "rows.zarr", **options).save_model(folder / kind / "m.model")
        package.fit((few, y[:150]), **options).save_model(folder / kind / "smaller")
        model = load_model(folder / kind / "m.model")
        alpha = 0.5 * load_alpha(folder / kind / "m.model", model)
        weights = "dual_coef" if isinstance(model, KernelModel) else "coef"
        other = dataclasses.replace(model, **{weights: -0.5 * getattr(model, weights)})
        other.save(folder / kind / "same size", alpha)
    return folder


def overwrite(folder: Path, other: Path) -> None:
    """`cp -r other/. folder/`: each file stays the same file, is emptied, and gets the other content."""
    for path in other.iterdir():
        with open(path, "rb") as reading, open(folder / path.name, "wb") as writing:
            shutil.copyfileobj(reading, writing)


def exchange(folder: Path, other: Path) -> None:
    """Another folder takes the name, and the former files are deleted, as --overwrite does it."""
    os.rename(folder, folder.with_name("former"))
    shutil.copytree(other, folder)
    shutil.rmtree(folder.with_name("former"))


def after(function: str, change: Callable[[], None], patch: pytest.MonkeyPatch) -> None:
    """Have `change` called once, when this function of `linear_model` has returned."""
    former, left = getattr(linear_model, function), [change]

    def changing(*arguments: Any, **options: Any) -> Any:
        found = former(*arguments, **options)
        if left:
            left.pop()()
        return found

    patch.setattr(linear_model, function, changing)


def outcome(bigsvm: Bigsvm, command: list[str]) -> tuple[int, Any, str]:
    """(exit code, what came out, what was said); what was written is moved away."""
    said = bigsvm(*command)
    found: list[Any] = []
    if "--json" in command and said.code in (0, 4):
        result = said.document["result"]
        found.append({name: value for name, value in result.items() if name not in UNSTEADY})
    for path in sorted([*Path().glob("found*"), *Path().glob("new.model/*")]):
        found.append((path.name, path.read_bytes()))
    for path in [*Path().glob("found*"), *Path().glob("new.model*")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return said.code, found, said.err + said.out


@pairs_of(
    kind__opened=[(kind, opened) for kind in KINDS for opened in ("read_whole_document", OPENED[kind], "open_array")],
    command=COMMANDS,
    new=["same size", "smaller"],
)
def test_a_command_uses_the_model_that_it_opened_or_refuses(
    bigsvm: Bigsvm, made: Path, kind: str, opened: str, command: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(made / kind, Path(), dirs_exist_ok=True)
    code, wanted, said = outcome(bigsvm, COMMANDS[command])
    if code not in (0, 4):
        assert code == 2, said  # the format cannot hold such a model
        return
    after(opened, lambda: overwrite(Path("m.model"), made / kind / new), monkeypatch)
    now, found, said = outcome(bigsvm, COMMANDS[command])
    if now == code:
        assert found == wanted
    else:
        assert now == 65, said
        assert "changed while it was read" in said or "digest" in said
        assert found == []


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_that_takes_its_name_does_not_disturb(
    bigsvm: Bigsvm, made: Path, kind: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(made / kind, Path(), dirs_exist_ok=True)
    code, wanted, said = outcome(bigsvm, COMMANDS[command])
    opened = "open_array" if command in ("certify", "warm start") else OPENED[kind]  # alpha is opened last
    after(opened, lambda: exchange(Path("m.model"), made / kind / "smaller"), monkeypatch)
    now, found, said = outcome(bigsvm, COMMANDS[command])
    assert now == code, said
    assert found == wanted


LOADS: dict[str, tuple[Any, Callable[[Path], Any]]] = {
    "a program": (linear_model, load_model),
    "a service": (predictor, predictor.load),
    "certify": (linear_model, linear_model.load_with_alpha),
    "promote": (linear_model, check_model),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("load", LOADS)
def test_a_folder_that_takes_its_name_while_it_is_read_is_read_instead(
    made: Path, tmp_path: Path, kind: str, load: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of one model were held against the digests of the other, and it was called damaged."""
    shutil.copytree(made / kind / "m.model", tmp_path / "m.model")
    module, loading = LOADS[load]
    former, left = module.read_whole_document, [made / kind / "same size", made / kind / "smaller"]

    def exchanged(path: Path) -> Any:
        found = former(path)
        if left:
            exchange(tmp_path / "m.model", left.pop(0))
        return found

    monkeypatch.setattr(module, "read_whole_document", exchanged)
    loading(tmp_path / "m.model")
    assert not left


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("new", ["same size", "smaller"])
@pytest.mark.parametrize("load", [load_model, predictor.load])
def test_a_model_in_a_program_scores_as_it_was_opened_or_refuses(
    made: Path, tmp_path: Path, kind: str, new: str, load: Callable[[Path], Any]
) -> None:
    shutil.copytree(made / kind / "m.model", tmp_path / "m.model")
    model = load(tmp_path / "m.model")
    X = np.random.default_rng(1).standard_normal((50, model.n_features)).astype(np.float32)
    wanted = load(made / kind / "m.model").decision_function(X)
    overwrite(tmp_path / "m.model", made / kind / new)
    if kind == "linear":
        np.testing.assert_array_equal(model.decision_function(X), wanted)
        return
    with pytest.raises(DataError, match="changed while it was read"):
        model.decision_function(X)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("new", ["same size", "smaller"])
def test_a_version_of_a_registry_is_one_model(
    bigsvm: Bigsvm, made: Path, kind: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(made / kind, Path(), dirs_exist_ok=True)
    after("open_array", lambda: overwrite(Path("m.model"), made / kind / new), monkeypatch)
    said = bigsvm("promote", "registry", "m.model")
    assert said.code in (0, 65), said.err
    if said.code == 0:
        there = {path.name: path.read_bytes() for path in Path("registry/current").iterdir()}
        model = {name: (made / kind / "m.model" / name).read_bytes() for name in there}
        assert there == model


def test_a_saved_copy_of_an_opened_model_is_that_model(made: Path, tmp_path: Path) -> None:
    for kind in KINDS:
        model = load_model(made / kind / "m.model")
        model.save(tmp_path / kind, load_alpha(made / kind / "m.model", model))
        for path in (made / kind / "m.model").iterdir():
            if path.suffix == ".npy":
                assert (tmp_path / kind / path.name).read_bytes() == path.read_bytes()
        json.loads((tmp_path / kind / "model.json").read_text())
