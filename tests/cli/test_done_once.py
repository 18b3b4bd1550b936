"""Commands that must not be repeated once they are done: a signal gives 75 where nothing was done, else 0."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigsvm import compile_in_child
from bigsvm.cli import interrupts, text
from bigsvm.cli.main import run
from bigsvm.model import versions
from bigsvm.model.linear_model import LinearModel
from bigsvm.model.versions import changes, history_file, swap, tidy
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest import ingest as ingest_module
from bigsvm.store.ingest.appending import commit
from bigsvm.store.ingest.ingest import ingest
from bigsvm.store.sealing import one_writer
from tests.products import each_of

X = np.random.default_rng(0).standard_normal((30, 3))
y = np.where(X[:, 0] > 0, 1, -1)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    places = [str(tmp_path_factory.mktemp("models") / f"{seed}.model") for seed in (0, 1)]
    for seed, place in enumerate(places):
        LinearModel(np.ones((1, 3)), np.full(1, float(seed)), np.array([-1, 1])).save(place, alpha=np.ones((1, 9)))
    return places


Case = tuple[list[str], Callable[[], bool]]


def appending(folder: Path, models: list[str]) -> Case:
    store, rows = folder / "rows.zarr", folder / "more.npz"
    ingest((X, y), store)
    np.savez(rows, X=X[:5], y=y[:5])
    return ["ingest", str(rows), str(store), "--append"], lambda: open_store(store).n_samples == 35


def ingesting(folder: Path, models: list[str]) -> Case:
    np.savez(folder / "rows.npz", X=X, y=y)
    return ["ingest", str(folder / "rows.npz"), str(folder / "rows.zarr")], (folder / "rows.zarr").exists


def promoting(folder: Path, models: list[str]) -> Case:
    registry = folder / "registry"
    versions.promote(registry, models[0])
    return ["promote", str(registry), models[1]], lambda: versions.current_version(registry) == 2


def rolling_back(folder: Path, models: list[str]) -> Case:
    registry = folder / "registry"
    for model in models:
        versions.promote(registry, model)
    return ["rollback", str(registry)], lambda: versions.current_version(registry) == 1


STEPS: dict[str, tuple[Callable[[Path, list[str]], Case], list[tuple[Any, str]]]] = {
    "append": (appending, [
        (ingest_module, "_copy"), (commit, "_files"), (commit, "write_pending"), (commit, "it_is_done"),
        (commit, "put_kept"), (commit, "sync_directory"), (text, "memory"),
    ]),
    "ingest": (ingesting, [(ingest_module, "_copy"), (text, "memory")]),
    "promote": (promoting, [
        (changes, "_copy_model"), (swap, "announce"), (swap, "_point_to"), (swap, "write_down"), (tidy, "history"),
    ]),
    "rollback": (rolling_back, [
        (swap, "announce"), (swap, "_point_to"), (swap, "write_down"), (history_file, "model_fingerprint"),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("before", [True, False])
@each_of(
    way__module__step=[(way, *step) for way, (_, steps) in STEPS.items() for step in steps],
    number=[signal.SIGTERM, signal.SIGINT, signal.SIGHUP],
)
def test_the_exit_code_says_whether_it_was_done(
    way: str, module: Any, step: str, before: bool, number: int, tmp_path: Path, models: list[str],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)
    command, done = STEPS[way][0](tmp_path, models)
    plain, sent = getattr(module, step), []

    def disturbed(*given: Any, **named: Any) -> Any:
        first = not sent
        sent.append(step)
        if first and before:
            os.kill(os.getpid(), number)
        found = plain(*given, **named)
        if first and not before:
            os.kill(os.getpid(), number)
        return found

    monkeypatch.setattr(module, step, disturbed)
    code = run([*command, "--json"])
    assert sent
    assert code == (0 if done() else 75)
    assert json.loads(capsys.readouterr().out)["status"] == ("ok" if done() else "interrupted")
    if code == 75:  # as told
        assert run([*command, "--json"]) == 0
    assert done()


def test_rows_that_were_added_are_told_where_the_result_cannot_be(tmp_path: Path) -> None:
    """Repeating the command, as one does after exit code 73, adds the rows again."""
    command, done = appending(tmp_path, [])
    with open("/dev/full", "wb") as full:
        program = [sys.executable, "-m", "bigsvm", *command]
        ended = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, done()) == (73, True)
    assert "standard output: cannot write: " in ended.stderr
    assert "the command itself is done (do not repeat it)" in ended.stderr


def test_a_second_signal_ends_a_program_that_cannot_tell_what_it_did(
    tmp_path: Path, models: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command, done = promoting(tmp_path, models)
    ended: list[int] = []

    def twice(*given: Any, **named: Any) -> Any:
        for _ in range(2 if done() else 0):
            os.kill(os.getpid(), signal.SIGTERM)
        return plain(*given, **named)

    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    plain = versions.history
    monkeypatch.setattr(versions, "history", twice)
    monkeypatch.setattr(interrupts, "_TELLING_S", -1.0)
    monkeypatch.setattr(os, "_exit", ended.append)
    assert run(command) == 0
    assert ended == [0]
    assert done()


@pytest.mark.parametrize("way", ["append", "ingest"])
def test_a_small_store_that_was_made_before_is_not_what_was_asked_for(
    way: str, tmp_path: Path, models: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is made so that all code is compiled; from then on no signal was heeded any more."""
    command, done = STEPS[way][0](tmp_path, models)
    compile_in_child._called.clear()
    made: list[Path] = []
    plain, load = ingest_module._copy, one_writer.it_is_done

    def disturbed(*given: Any, **named: Any) -> Any:
        if made:
            os.kill(os.getpid(), signal.SIGTERM)
        return plain(*given, **named)

    def noted(place: Path) -> None:
        made.append(place)
        load(place)

    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    monkeypatch.setattr(one_writer, "it_is_done", noted)
    monkeypatch.setattr(ingest_module, "_copy", disturbed)
    assert run([*command, "--json"]) == 75
    assert len(made) == 1  # the small one
    assert not done()
    assert json.loads(capsys.readouterr().out)["status"] == "interrupted"


def test_several_signals_at_once_are_one(tmp_path: Path, models: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A group of processes gets SIGINT and SIGTERM together; within the last step both wait for its end."""
    command, done = promoting(tmp_path, models)
    plain = swap._point_to

    def twice(*given: Any) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
        plain(*given)

    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(swap, "_point_to", twice)
    monkeypatch.setattr(os, "_exit", lambda code: pytest.fail(f"ended with {code}"))
    assert run(command) == 0
    assert done()
