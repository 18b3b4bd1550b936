"""Commands that must not be repeated once they are done: a signal gives 75 where nothing was done, else 0."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigsvm.cli import text
from bigsvm.cli.main import run
from bigsvm.model import versions
from bigsvm.model.linear_model import LinearModel
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest import ingest as ingest_module
from bigsvm.store.ingest.appending import commit
from bigsvm.store.ingest.ingest import ingest
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
        (versions, "_copy_model"), (versions, "_announce"), (versions, "_point_to"), (versions, "_write_down"),
        (versions, "history"),
    ]),
    "rollback": (rolling_back, [
        (versions, "_announce"), (versions, "_point_to"), (versions, "_write_down"), (versions, "model_fingerprint"),
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
    monkeypatch.setattr(os, "_exit", ended.append)
    assert run(command) == 0
    assert ended == [0]
    assert done()
