"""A run that is stopped and goes on gives the bytes of one that was never stopped."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsvm
from bigsvm.config import KERNEL_SOLVERS, FitConfig
from bigsvm.errors import DataError, Interrupted
from bigsvm.run.execute.signals import Stop
from bigsvm.run.fit import loop as looping
from bigsvm.run.fit.checkpoint import Checkpoints
from bigsvm.run.fit.fit import fit_store
from bigsvm.solvers.registry import SOLVERS
from bigsvm.store.state.state_files import dump, load, read_tree, write_tree
from tests.classifiers import CLASSIFIERS
from tests.products import each_of


def classes(n_classes: int, n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n_classes)
    X = rng.normal(size=(n, 12))  # float64: kernels that other tests compile too
    return X, np.argmax(X @ rng.normal(size=(12, n_classes)) + 0.5 * rng.normal(size=(n, n_classes)), axis=1)


def same_folder(one: Path, two: Path) -> bool:
    names = sorted(path.name for path in one.iterdir())
    assert names == sorted(path.name for path in two.iterdir())
    return all((one / name).read_bytes() == (two / name).read_bytes() for name in names)


def interrupt_after(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is asked to stop when it looks for the `count`-th time; small fits that compile look at their own."""
    left, own = count, []

    def asked(self: Stop) -> bool:
        nonlocal left
        own.append(self)
        if self is not own[0]:
            return False
        left -= 1
        if left <= 0:
            self.by = "SIGTERM"
        return left <= 0

    monkeypatch.setattr(Stop, "__bool__", asked)


def stopped(store: Any, config: FitConfig, checkpoints: Checkpoints, after: int, resume: bool = False) -> str:
    """What a run says that is stopped when it looks for the `after`-th time."""
    with pytest.MonkeyPatch.context() as patch:
        interrupt_after(after, patch)
        with pytest.raises(Interrupted) as caught:
            fit_store(store, config, checkpoints=checkpoints, resume=resume)
    return str(caught.value)


def until_done(store: Any, config: FitConfig, folder: Path, every: int) -> tuple[Any, int]:
    """Run with an interruption every `every` looks until it is done; the result and the number of interruptions.

    The looks between two become more, since work that is left as a whole may need more than `every` to be done at all.
    """
    stops = 0
    while True:
        with pytest.MonkeyPatch.context() as patch:
            interrupt_after(every + stops * (1 + stops // 4), patch)
            try:
                return fit_store(store, config, checkpoints=Checkpoints(folder, {}, 1e9), resume=True), stops
            except Interrupted:
                stops += 1


def comes_to_the_same(store: Any, config: FitConfig, tmp_path: Path, every: int) -> None:
    """Check that a fit interrupted every `every` looks ends with the model and figures of an undisturbed one."""
    undisturbed = fit_store(store, config)
    undisturbed.save_model(tmp_path / "a")
    disturbed, stops = until_done(store, config, tmp_path / "checkpoint", every)
    disturbed.save_model(tmp_path / "b")
    assert stops >= 2
    assert same_folder(tmp_path / "a", tmp_path / "b")
    for name in ("passes", "epochs", "certificate_passes", "status"):
        assert disturbed.figures.get(name) == undisturbed.figures.get(name)


@each_of(
    n_classes__options=[
        (2, {}),
        (2, {"bias": "none", "loss": "squared_hinge"}),
        (10, {}),
        (2, {"shards": 2}),
        (2, {"class_weight": {"0": 2.0}, "no_dual": True}),
    ],
    tol=[1e-7, 1e-3],
)
@pytest.mark.usefixtures("streaming")
def test_interrupted_anywhere_it_comes_to_the_same_bytes(
    n_classes: int, options: dict[str, Any], tol: float, tmp_path: Path
) -> None:
    store = bigsvm.open_store(classes(n_classes))
    config = FitConfig.of(
        **{"solver": "dcd", "loss": "hinge", "tol": tol, "memory": "64MiB", "max_passes": 60, **options}
    )
    comes_to_the_same(store, config, tmp_path, 20)


@each_of(name=[name for name in CLASSIFIERS if name != "dcd"], n_classes=[2, 3])
@pytest.mark.usefixtures("streaming")
def test_every_solver_comes_to_the_same_bytes(name: str, n_classes: int, tmp_path: Path) -> None:
    # Those that fetch row after row of K read all rows for each.
    n = 120 if name in KERNEL_SOLVERS and name != "smo" else 400
    store = bigsvm.open_store(classes(n_classes, n))
    loss = SOLVERS[name].losses[0]
    config = FitConfig.of(solver=name, loss=loss, C=0.01, tol=1e-3, memory="64MiB", max_passes=40)
    comes_to_the_same(store, config, tmp_path, 50 if name == "newton-ws" else 3)  # looks in each of many iterations


def test_rows_in_memory_go_on_too(tmp_path: Path) -> None:
    store = bigsvm.open_store(classes(3))
    options = {"max_sweeps_per_step": "2"}
    config = FitConfig.of(loss="hinge", C=0.1, tol=1e-6, memory="1GiB", solver_options=options)
    fit_store(store, config).save_model(tmp_path / "a")
    disturbed, stops = until_done(store, config, tmp_path / "checkpoint", 4)
    disturbed.save_model(tmp_path / "b")
    assert stops >= 10
    assert same_folder(tmp_path / "a", tmp_path / "b")


@pytest.mark.usefixtures("streaming_hundreds")
@pytest.mark.parametrize("n_classes", [2, 4])
def test_a_run_that_was_handed_over_to_another_solver_goes_on(n_classes: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(n_classes)
    X = rng.standard_normal((900, 20))
    y = rng.integers(0, n_classes, len(X))
    options = {"working_rows": "12"}
    config = FitConfig.of(
        solver="newton-ws", loss="hinge", C=1.0, tol=3e-3, memory="64MiB", max_passes=40, solver_options=options
    )
    store = bigsvm.open_store((X, y))
    comes_to_the_same(store, config, tmp_path, 60)
    assert any("dcd goes on" in message for message in fit_store(store, config).warnings)


@pytest.mark.usefixtures("streaming")
def test_often_saved_is_not_otherwise_computed(tmp_path: Path) -> None:
    store = bigsvm.open_store(classes(2))
    config = FitConfig.of(solver="dcd", loss="hinge", memory="64MiB")
    fit_store(store, config).save_model(tmp_path / "a")
    often = Checkpoints(tmp_path / "checkpoint", {}, 0.0)
    often.due = lambda: True  # type: ignore[method-assign]
    fit_store(store, config, checkpoints=often).save_model(tmp_path / "b")
    assert often.written > 10
    assert len(list(often.folder.iterdir())) == 2
    assert same_folder(tmp_path / "a", tmp_path / "b")


@pytest.mark.usefixtures("streaming")
def test_a_torn_newest_checkpoint_falls_back_to_the_one_before(tmp_path: Path) -> None:
    store = bigsvm.open_store(classes(2))
    config = FitConfig.of(loss="hinge", memory="64MiB")
    fit_store(store, config).save_model(tmp_path / "a")
    folder = tmp_path / "checkpoint"
    for _ in range(2):
        assert "SIGTERM" in stopped(store, config, Checkpoints(folder, {}, 1e9), 12, resume=True)
    newest = sorted(folder.iterdir())[-1]
    identity = read_tree(newest)["identity"]
    assert identity["plan"]["n_blocks"] > 1
    assert "why" not in identity["plan"]  # words: a build that words them otherwise goes on
    for file in sorted(newest.iterdir()):
        content = file.read_bytes()
        file.write_bytes(content[: len(content) // 2])
        saved = Checkpoints(folder, identity, 60.0).newest()
        assert saved is not None
        file.write_bytes(content)
    file.write_bytes(content[:-2])
    for older in sorted(folder.iterdir())[:-1]:  # and where none is whole, it begins again
        kept = tmp_path / "kept"
        older.rename(kept)
        again = Checkpoints(folder, {}, 1e9)
        assert again.newest() is None
        assert len(again.damaged) == 1
        kept.rename(older)
    fit_store(store, config, checkpoints=Checkpoints(folder, {}, 1e9), resume=True).save_model(tmp_path / "b")
    assert same_folder(tmp_path / "a", tmp_path / "b")


@pytest.mark.usefixtures("streaming")
def test_a_checkpoint_from_before_dcd_had_a_rule_goes_on(tmp_path: Path) -> None:
    """The spread of projected gradients is for --stop paper alone, which runs of that time did not have."""
    store, config = bigsvm.open_store(classes(2)), FitConfig.of(loss="hinge", memory="64MiB")
    fit_store(store, config).save_model(tmp_path / "a")
    folder = tmp_path / "checkpoint"
    stopped(store, config, Checkpoints(folder, {}, 1e9), 12)
    newest = sorted(folder.iterdir())[-1]
    tree = {key: _in_memory(part) for key, part in read_tree(newest).items()}
    groups = _lists_with(tree, "spread")
    assert groups
    for group in groups:
        del group["spread"]
    shutil.rmtree(newest)
    newest.mkdir()
    write_tree(newest, tree)
    fit_store(store, config, checkpoints=Checkpoints(folder, {}, 1e9), resume=True).save_model(tmp_path / "b")
    assert same_folder(tmp_path / "a", tmp_path / "b")


def _in_memory(tree: Any) -> Any:
    """The same tree without maps of files."""
    if isinstance(tree, dict):
        return {key: _in_memory(part) for key, part in tree.items()}
    if isinstance(tree, list):
        return [_in_memory(part) for part in tree]
    return np.array(tree) if isinstance(tree, np.ndarray) else tree


def _lists_with(tree: Any, name: str) -> list[dict[str, Any]]:
    """The dictionaries within a tree that have such a key."""
    if isinstance(tree, dict):
        return [tree] if name in tree else [found for part in tree.values() for found in _lists_with(part, name)]
    return [found for part in tree for found in _lists_with(part, name)] if isinstance(tree, list) else []


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("changed", [{"seed": 1}, {"C": 2.0}, {"tol": 1e-4}])
def test_a_checkpoint_of_another_run_is_refused_by_name(changed: dict[str, Any], tmp_path: Path) -> None:
    store = bigsvm.open_store(classes(2))
    options = {"loss": "hinge", "memory": "64MiB"}
    stopped(store, FitConfig.of(**options), Checkpoints(tmp_path / "c", {}, 1e9), 10)
    with pytest.raises(DataError, match="of another run"):
        fit_store(
            store, FitConfig.of(**options, **changed), checkpoints=Checkpoints(tmp_path / "c", {}, 1e9), resume=True
        )
    other = bigsvm.open_store((classes(2)[0] + 1, classes(2)[1]))
    with pytest.raises(DataError, match="of another run: store was"):
        fit_store(other, FitConfig.of(**options), checkpoints=Checkpoints(tmp_path / "c", {}, 1e9), resume=True)


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ({"kernel": "rbf", "gamma": 0.3}, {"gamma": 0.4}),
        ({"kernel": "poly", "degree": 2, "coef0": 1.0}, {"degree": 3}),
        ({"kernel": "poly", "degree": 2, "coef0": 1.0}, {"coef0": 2.0}),
        ({"solver": "dcd", "loss": "hinge"}, {"bias_scale": 2.0}),
        ({"solver": "dcd", "loss": "hinge"}, {"class_weight": {"1": 2.0}}),
    ],
)
def test_a_checkpoint_of_another_kernel_is_refused_by_name(
    options: dict[str, Any], changed: dict[str, Any], tmp_path: Path
) -> None:
    """Whatever makes it another problem is named."""
    store = bigsvm.open_store(classes(2, 80))
    options = {"memory": "64MiB", "tol": 1e-9, **options}
    stopped(store, FitConfig.of(**options), Checkpoints(tmp_path / "c", {}, 1e9), 8)
    (name,) = changed
    with pytest.raises(DataError, match=f"of another run: {name} was"):
        fit_store(
            store, FitConfig.of(**{**options, **changed}), checkpoints=Checkpoints(tmp_path / "c", {}, 1e9), resume=True
        )


def test_a_flipped_bit_in_a_saved_array_is_found(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a": np.arange(6.0), "b": 1})
    path = tmp_path / "00000.npy"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"damaged.*digest"):
        read_tree(tmp_path)


def test_trees_come_back_as_they_were(tmp_path: Path) -> None:
    tree = {
        "a": np.arange(6.0).reshape(2, 3),
        "b": [np.zeros((0, 4), np.uint8), {"c": None, "d": [1, 2.5, True, "x", float("inf")]}],
        "e": np.float64(3.5),
        "f": np.arange(10, dtype=np.int64)[::2],
    }
    tmp_path.joinpath("t").mkdir()
    write_tree(tmp_path / "t", tree)
    back = read_tree(tmp_path / "t")
    np.testing.assert_array_equal(back["a"], tree["a"])
    assert back["b"][0].shape == (0, 4)
    assert back["b"][1] == tree["b"][1]
    assert back["e"] == 3.5
    np.testing.assert_array_equal(back["f"], [0, 2, 4, 6, 8])
    for array in tmp_path.glob("t/*.npy"):
        if np.load(array).shape == (2, 3):
            array.unlink()
    part = read_tree(tmp_path / "t", ("e", "f"))  # what is not asked for is not read
    assert (list(part), part["e"]) == (["e", "f"], 3.5)
    with pytest.raises(DataError):
        read_tree(tmp_path / "t", ("a",))


def test_load_fills_in_place() -> None:
    state = looping.LoopState()
    other = looping.LoopState(visits=3, ending="stopped", primal=2.0)
    assert load(state, dump(other)) is state
    np.testing.assert_equal(dump(state), dump(other))


def test_checkpoints_are_due_by_time_and_sooner_after_a_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("bigsvm.run.fit.checkpoint.time.monotonic", lambda: now)
    checkpoints = Checkpoints(tmp_path / "c", {}, 60.0)
    now = 59.0
    assert not checkpoints.due()
    checkpoints.proved()
    assert checkpoints.due()
    checkpoints.save({"x": 1})
    assert not checkpoints.due()
    now += 60.0
    assert checkpoints.due()
    checkpoints.seconds = 10.0  # of one: they would take more of the run than it is worth
    assert not checkpoints.due()
    now += 140.0
    assert checkpoints.due()


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("every", [9])
def test_an_active_set_and_its_pass_go_on_where_they_were_left(every: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2500, 8)).astype(np.float32)
    y = np.where(X[:, 0] + 0.5 * rng.standard_normal(2500) > 0, 1, -1)
    store = bigsvm.open_store((X, y))
    config = FitConfig.of(kernel="rbf", gamma=0.3, C=1.0, tol=1e-3, memory="64MiB", working_set=256)
    comes_to_the_same(store, config, tmp_path, every)


@pytest.mark.parametrize("name", ["²", "٣", "00000001²", "1", "x", "-0000001"])
def test_folders_that_are_no_checkpoints_are_passed_over(tmp_path: Path, name: str) -> None:
    """Unicode has digits of which `int` makes no number."""
    checkpoints = Checkpoints(tmp_path / "c", {}, 60)
    (tmp_path / "c" / name).mkdir(parents=True)
    assert checkpoints.newest() is None
    checkpoints.save({"x": 1})
    assert checkpoints.newest() == {"x": 1}
    assert checkpoints.damaged == []
    assert (tmp_path / "c" / name).is_dir()


def test_no_bit_of_a_saved_array_changes_it(tmp_path: Path) -> None:
    """Its header is not in the digest of its values, and NumPy raises errors of many kinds for a damaged one."""
    folder = tmp_path / "state"
    folder.mkdir()
    write_tree(folder, {"alpha": np.arange(4, dtype=np.float64).reshape(2, 2)})
    (path,) = folder.glob("*.npy")
    content, truth = path.read_bytes(), read_tree(folder)["alpha"].copy()
    damages = [content[:size] for size in range(0, len(content), 9)]
    damages += [
        content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]
        for place in range(len(content))
        for bit in range(8)
    ]
    refused = 0
    for damaged in damages:
        path.write_bytes(damaged)
        try:
            found = read_tree(folder)["alpha"]
        except DataError:
            refused += 1
        else:
            assert found.dtype == truth.dtype
            np.testing.assert_array_equal(found, truth)
    assert refused > len(damages) // 2
