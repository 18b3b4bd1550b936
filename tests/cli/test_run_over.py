"""A command that is sent again after its run is over: which options may be others, and which ask for another fit."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from bigsvm.cli.main import run
from bigsvm.config import OPTIONS
from bigsvm.files.locks import alone
from bigsvm.observe.jsonl import JsonlFile
from bigsvm.store.ingest.ingest import ingest
from tests.cli.conftest import Bigsvm

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 4)).astype(np.float32)
y = np.where(X[:, 0] + rng.normal(size=200) > 0, 1, -1)
OVER = "The run had already ended, and nothing was repeated."

ELSEWHERE = {
    "threads": ["--threads", "1"],
    "scratch": ["--scratch", "other"],
    "scratch_limit": ["--scratch-limit", "1GiB"],
    "cache_memory": ["--cache-memory", "1MiB"],
    "scheduler": ["--scheduler", "processes"],
    "scheduler_file": ["--scheduler-file", "cluster.json"],
    "workers": ["--workers", "2"],
    "worker_scratch": ["--worker-scratch", "other"],
    "max_time": ["--max-time", "1h"],
}
"""Of each option that changes nothing: another value."""
RESUME_TAKES = ("threads", "scheduler", "scheduler_file", "workers", "worker_scratch")
BESIDE = {
    "checkpoint-every": ["--checkpoint-every", "1s"],
    "allow-unconverged": ["--allow-unconverged"],
    "overwrite": ["--overwrite"],
    "several": ["--threads", "1", "--scratch", "other", "--checkpoint-every", "1s", "--overwrite"],
}
ANOTHER_FIT = {
    "C": ["--c", "2"],
    "tol": ["--tol", "1e-2"],
    "seed": ["--seed", "1"],
    "memory": ["--memory", "65MiB"],
    "stage": ["--stage", "none"],
    "no_dual": ["--no-dual"],
    "scale": ["--scale", "maxabs"],
    "label": ["--label", "obs/label"],
}


class Fit(NamedTuple):
    """A fit that is over: its folder, and its command line without the place of the store."""

    folder: Path
    options: list[str]

    def again(self, *more: str, store: str = "s.zarr") -> list[str]:
        return ["fit", str(self.folder / store), *self.options, "--resume", *more]


@pytest.fixture(scope="module", params=["converged", "stopped"])
def over(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Fit:
    folder = tmp_path_factory.mktemp("over")
    ingest((X, y), folder / "s.zarr")
    shutil.copytree(folder / "s.zarr", folder / "copy.zarr")
    (folder / "link.zarr").symlink_to("s.zarr")
    ingest((X[:100], y[:100]), folder / "others.zarr")
    options = ["--loss", "hinge", "--memory", "64MiB", "-o", str(folder / "m")]
    if request.param == "stopped":
        options += ["--max-passes", "1", "--tol", "1e-9"]
    fit = Fit(folder, options)
    assert run(fit.again("--scratch", str(folder / "scratch"), "--quiet")) == code_of(fit)
    return fit


def code_of(fit: Fit) -> int:
    return 4 if "--max-passes" in fit.options else 0


def left_alone(fit: Fit) -> list[Any]:
    """What tells whether anything was written again."""
    files = [*(fit.folder / "m").iterdir(), *(fit.folder / "m.run").iterdir()]
    return sorted((path.name, path.stat().st_ino, path.stat().st_mtime_ns) for path in files)


def test_every_option_that_changes_nothing_is_here() -> None:
    assert set(ELSEWHERE) == {name for name, option in OPTIONS.items() if option.changes == "nothing"}
    assert {name for name in ANOTHER_FIT if name in OPTIONS and OPTIONS[name].changes == "nothing"} == set()


@pytest.mark.parametrize("name", [*ELSEWHERE, *BESIDE])
def test_it_is_recognised_whatever_it_has_for_another_attempt(
    name: str, over: Fit, capsys: pytest.CaptureFixture[str]
) -> None:
    before, more = left_alone(over), {**ELSEWHERE, **BESIDE}[name]
    capsys.readouterr()
    if name == "max_time" and code_of(over) == 4:  # with more time it may come further
        assert run(over.again(*more)) == 73
    else:
        assert run(over.again(*more)) == (0 if name == "allow-unconverged" else code_of(over))
        assert OVER in capsys.readouterr().out
    if name in RESUME_TAKES:
        assert run(["resume", str(over.folder / "m.run"), *more]) == code_of(over)
        assert OVER in capsys.readouterr().out
    assert left_alone(over) == before


@pytest.mark.parametrize("command", ["fit", "resume"])
@pytest.mark.parametrize("store", ["copy.zarr", "link.zarr", "others.zarr"])
def test_the_rows_count_and_not_their_place(
    store: str, command: str, over: Fit, capsys: pytest.CaptureFixture[str]
) -> None:
    before, place = left_alone(over), str(over.folder / store)
    words = over.again(store=store) if command == "fit" else ["resume", str(over.folder / "m.run"), "--store", place]
    capsys.readouterr()
    code = run(words)
    said = capsys.readouterr()
    if store == "others.zarr":
        assert code == 73
        assert f"the run had ended, on other rows than those of {place} (" in said.err
    else:
        assert code == code_of(over)
        assert OVER in said.out
    assert left_alone(over) == before


@pytest.mark.parametrize("name", ANOTHER_FIT)
def test_another_fit_is_another(name: str, over: Fit, capsys: pytest.CaptureFixture[str]) -> None:
    before = left_alone(over)
    assert run(over.again(*ANOTHER_FIT[name])) == 73
    assert "the output exists" in capsys.readouterr().err
    assert left_alone(over) == before


@pytest.mark.parametrize("how", [shutil.copytree, lambda old, new: new.symlink_to(old)], ids=["moved", "linked"])
def test_a_model_and_its_record_that_were_moved_are_told_where_they_are(
    how: Callable[[Path, Path], Any], over: Fit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("m", "m.run"):
        how(over.folder / name, tmp_path / name)
    capsys.readouterr()
    assert run([*over.again("--json"), "-o", str(tmp_path / "m")]) == code_of(over)
    result = json.loads(capsys.readouterr().out)["result"]
    for name, place in (("model", "m"), ("run", "m.run")):
        assert Path(result[name]).resolve() == (tmp_path / place).resolve()


@pytest.mark.parametrize("quiet", [False, True])
def test_a_record_of_events_that_cannot_be_written_is_a_warning_in_words(
    quiet: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ingest((X, y), tmp_path / "s.zarr")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(JsonlFile, "_write", full)
    capsys.readouterr()
    command = ["fit", str(tmp_path / "s.zarr"), "-o", str(tmp_path / "m"), *(["--quiet"] if quiet else [])]
    assert run([*command, "--json"]) == 0
    said = capsys.readouterr()
    (warning,) = [text for text in json.loads(said.out)["warnings"] if "observer" in text]
    place = tmp_path / "m.run" / "events.jsonl"
    assert warning.startswith(f"an observer failed and was dropped: {place}: cannot write: No space left on device, ")
    assert quiet or warning in said.err
    assert "Error(" not in said.err
    # How it ended is written down all the same.
    assert json.loads((tmp_path / "m.run" / "run.json").read_text())["status"] == "converged"
    assert run([*command, "--resume"]) == 0


@pytest.mark.parametrize(
    "flags", [[], ["--resume"], ["--overwrite"], ["--resume", "--overwrite"], ["--c", "3", "--resume"]]
)
@pytest.mark.parametrize("left", ["checkpoint", "model", "nothing"])
def test_a_run_that_is_going_on_is_said_to_be(
    left: str, flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of another command for it: not that it was stopped, is over, or is another fit."""
    ingest((X[:20], y[:20]), tmp_path / "s.zarr")
    folder, model = tmp_path / "m.run", tmp_path / "m"
    folder.mkdir()
    if left == "checkpoint":
        (folder / "checkpoint" / "00000001").mkdir(parents=True)
    elif left == "model":
        model.mkdir()
        (model / "model.json").write_text("{}")
    command = ["fit", str(tmp_path / "s.zarr"), "-o", str(model), *flags]
    with alone(folder / "lock", "the run"):
        before = sorted(tmp_path.rglob("*"))
        capsys.readouterr()
        assert run(command) == 73
        assert f"{folder}: the run is in use by process {os.getpid()} on" in capsys.readouterr().err
        assert sorted(tmp_path.rglob("*")) == before
    if left == "checkpoint" and flags == []:
        (folder / "lock").touch()  # as a killed run leaves it
        assert run(command) == 73
        assert "holds the checkpoint of a stopped fit" in capsys.readouterr().err


def test_what_fails_twice_can_be_tried_again(bigsvm: Bigsvm, store: Path) -> None:
    """The first failure leaves a record, the second one begins by deleting it: nothing may be left in the way."""
    record = Path("x.model.run")
    record.mkdir()
    (record / "run.json").write_text('{"status": "error"}')
    for _ in range(2):
        assert bigsvm("fit", store, "--warm-start", "none.model", "-o", "x.model").code == 66
        assert not record.exists()


def test_an_empty_folder_of_somebody_else_stays(bigsvm: Bigsvm, store: Path) -> None:
    Path("mine").mkdir()
    said = bigsvm("fit", store, "--warm-start", "none.model", "-o", "x.model", "--run", "mine", "--overwrite")
    assert (said.code, Path("mine").is_dir()) == (66, True)
