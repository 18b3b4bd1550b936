"""A fit goes on with the solver that it began with, though 'auto' would choose another one by now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.config import FitConfig
from bigsvm.errors import DataError
from bigsvm.run.fit.checkpoint import Checkpoints
from bigsvm.run.fit.fit import fit_store, versions
from bigsvm.run.fit.plan import make_plan
from bigsvm.solvers import registry
from bigsvm.solvers.auto import Preference
from bigsvm.store.state.state_files import read_tree, write_tree
from tests.products import each_of
from tests.run.test_checkpoint import _in_memory, classes, same_folder, stopped

CLASSES: list[tuple[str, str, str, dict[str, Any]]] = [
    ("pegasos", "hinge", "none", {}),
    ("dcd", "hinge", "augmented", {"memory": "64MiB", "tol": 1e-5}),
    ("newton-ws", "hinge", "free", {}),
    ("hyperpass", "hinge", "free", {"shards": 2}),
    ("newton-cg", "squared_hinge", "augmented", {"shards": 2}),
    ("pcd", "squared_hinge", "free", {}),
    ("newton", "squared_hinge", "free", {}),
]
TARGETS: list[tuple[str, str, str, dict[str, Any]]] = [
    ("smo", "epsilon_insensitive", "free", {}),
    ("interior-point", "epsilon_insensitive", "augmented", {}),
    ("newton-cg", "squared_epsilon_insensitive", "none", {}),
]
ROWS = classes(2, 300)


def store_of(loss: str) -> Any:
    X, y = ROWS
    return bigsvm.open_store((X, X[:, 0] + 0.1 * y) if "insensitive" in loss else (X, y))


def options_of(loss: str, bias: str, options: dict[str, Any]) -> dict[str, Any]:
    return {"loss": loss, "bias": bias, "C": 2.0, "tol": 1e-4, "max_passes": 30, "threads": 1, **options}


def begun(solver: str, config: FitConfig, store: Any, folder: Path) -> None:
    """A fit of an 'auto' that knew this solver alone, stopped as soon as it has a state to save."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "preferences", lambda *_: [Preference(solver, "the best of its time")])
        save_one(store, config, folder)


def save_one(store: Any, config: FitConfig, folder: Path) -> None:
    after = 2
    while not folder.is_dir():
        stopped(store, config, Checkpoints(folder, {}, 1e9), after)
        after += 1


@each_of(solver__loss__bias__options=[*CLASSES, *TARGETS], stream=[True, False])
def test_a_fit_goes_on_with_the_solver_that_it_began_with(
    solver: str, loss: str, bias: str, options: dict[str, Any], stream: bool, tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    if stream or "shards" in options:
        request.getfixturevalue("streaming")
    store, asked = store_of(loss), options_of(loss, bias, options)
    named = fit_store(store, FitConfig.of(solver=solver, **asked))
    config, folder = FitConfig.of(**asked), tmp_path / "checkpoint"
    assert config.solver == "auto"
    begun(solver, config, store, folder)
    resumed = fit_store(store, config, checkpoints=Checkpoints(folder, {}, 1e9), resume=True)
    for name, result in (("a", named), ("b", resumed)):
        assert result.figures["solver"] == result.model.about["plan"]["solver"] == solver
        result.model.about.pop("plan")  # it holds the reason for the choice
        result.save_model(tmp_path / name)
    assert same_folder(tmp_path / "a", tmp_path / "b")
    assert resumed.figures["passes"] == named.figures["passes"]
    # Without --resume it is a new fit.
    now = make_plan(store, config).solver.name
    again = fit_store(store, config, checkpoints=Checkpoints(folder, {}, 1e9))
    assert again.figures["solver"] == now


def test_enough_of_these_are_not_what_auto_chooses() -> None:
    chosen = [make_plan(store_of(loss), FitConfig.of(**options_of(loss, *rest))).solver.name == solver
              for solver, loss, *rest in [*CLASSES, *TARGETS]]  # fmt: skip
    assert chosen.count(False) >= 7


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda identity: identity["plan"].update(solver="gone"), "solver was 'gone' and is"),
        (lambda identity: identity["plan"].update(solver="smo"), "solver was 'smo' and is"),  # not of this bias
        (lambda identity: identity["versions"].update(numpy="0.1"), "solver was 'pegasos' and is"),
        (lambda identity: identity["options"].update(solver="dcd"), "solver was 'dcd' and is 'auto'"),
    ],
)
def test_what_cannot_go_on_is_refused_by_name(change: Any, match: str, tmp_path: Path) -> None:
    store, config = store_of("hinge"), FitConfig.of(**options_of("hinge", "none", {}))
    folder = tmp_path / "checkpoint"
    begun("pegasos", config, store, folder)
    (newest,) = folder.iterdir()
    tree = _in_memory(read_tree(newest))
    change(tree["identity"])
    for file in newest.iterdir():
        file.unlink()
    write_tree(newest, tree)
    with pytest.raises(DataError, match=match):
        fit_store(store, config, checkpoints=Checkpoints(folder, {}, 1e9), resume=True)


def test_a_solver_that_was_named_is_no_choice_of_auto(tmp_path: Path) -> None:
    store, options = store_of("hinge"), options_of("hinge", "none", {})
    save_one(store, FitConfig.of(solver="pegasos", **options), tmp_path / "c")
    assert Checkpoints(tmp_path / "c", {}, 1e9).solver_of_auto(versions()) is None
    assert Checkpoints(tmp_path / "none", {}, 1e9).solver_of_auto(versions()) is None
    with pytest.raises(DataError, match="solver was 'pegasos' and is 'auto'"):
        fit_store(store, FitConfig.of(**options), checkpoints=Checkpoints(tmp_path / "c", {}, 1e9), resume=True)
    np.testing.assert_equal(Checkpoints(tmp_path / "c", {}, 1e9).rows(), store.identity.document())
