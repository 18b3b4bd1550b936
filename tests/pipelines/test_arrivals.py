"""Nights on which rows arrive: each file is added once, and the fit goes on from the model before."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigsvm.errors import BigSVMError, DataError, MissingInput, OutputError
from bigsvm.model import versions as registry
from bigsvm.model.linear_model import load_model
from bigsvm.report.about.model import model_of_run
from bigsvm.run.start.earlier import model_digest
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest.appending.grown_store import GrownStore
from bigsvm.store.ingest.ingest import ingest
from pipelines import arrivals, journal, steps
from pipelines.config import Job, read_job
from pipelines.start import Start
from tests.pipelines.jobs import Place, Retrain, job, retrain
from tests.pipelines.test_killed import MANY_EPOCHS, Killed, killed_in_the_fit, night
from tests.products import pairs_of

__all__ = ["job", "retrain"]

WARM = 'warm_start = true\n[arrivals]\nfiles = "in/*.svm"\n'


def text(seed: int, n_samples: int) -> str:
    """Lines of rows of one planted direction."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_samples, 5)).round(3)
    y = np.where(X.sum(axis=1) + 0.3 * rng.standard_normal(n_samples) > 0, 1, -1)
    rows = (" ".join(f"{j + 1}:{value}" for j, value in enumerate(row)) for row in X)
    return "".join(f"{label} {row}\n" for label, row in zip(y, rows, strict=True))


def deliver(folder: Path, name: str, seed: int = 5, n_samples: int = 20) -> Path:
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / name).write_text(text(seed, n_samples))
    return folder / "in" / name


@pytest.fixture
def growing(job: Place, tmp_path: Path) -> Job:
    """A job whose store grows, and its first promotion."""
    config = job(WARM, fit=MANY_EPOCHS)
    for name, seed in (("train", 1), ("holdout", 2)):
        (tmp_path / f"{name}.svm").write_text(text(seed, 200))
        ingest(tmp_path / f"{name}.svm", tmp_path / f"{name}.zarr", overwrite=True)
    read = read_job(config)
    assert night(read)["status"] == "promoted"
    return read


def test_rows_that_arrive_are_added_and_the_fit_goes_on_from_the_model_before(growing: Job, tmp_path: Path) -> None:
    first = model_digest(str(registry.current(tmp_path / "reg")))
    deliver(tmp_path, "b.svm", 6)
    deliver(tmp_path, "a.svm", 5)
    document = night(growing)
    assert (document["status"], document["version"]) == ("promoted", 2)
    assert {Path(name).name: rows for name, rows in document["added"].items()} == {"a.svm": 20, "b.svm": 20}
    assert document["fit"]["warm_start"]["model"] == first
    assert document["fit"]["warm_start"]["n_samples"] == 200
    (tmp_path / "all.svm").write_text(text(1, 200) + text(5, 20) + text(6, 20))
    at_once = ingest(tmp_path / "all.svm", tmp_path / "all.zarr")
    assert open_store(tmp_path / "train.zarr").content_fingerprint == at_once["content_fingerprint"]
    again = night(growing)
    assert (again["status"], again["added"]) == ("unchanged", {})
    record = json.loads((growing.folder / journal.RUN / "run.json").read_bytes())
    assert model_of_run(record) == growing.folder / journal.MODEL


@pairs_of(
    how=["it fails", "killed before", "killed after"],
    others=[(), ("before",), ("after",), ("before", "after")],
    earlier=[False, True],
)
def test_rows_of_a_file_are_added_once_whatever_others_add(
    growing: Job, tmp_path: Path, how: str, others: tuple[str, ...], earlier: bool
) -> None:
    """`others` : when somebody else adds rows, before the file's rows were to be added or after."""
    path = deliver(tmp_path, "a.svm")

    def others_add(when: str) -> None:
        if when in others:
            (tmp_path / f"{when}.svm").write_text(text(9 + len(when), 30))
            with pytest.MonkeyPatch.context() as patch:
                if earlier:
                    now = GrownStore._more_content
                    patch.setattr(GrownStore, "_more_content", lambda store: {"parts": untold(now(store)["parts"])})
                ingest(tmp_path / f"{when}.svm", tmp_path / "train.zarr", append=True)

    def untold(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [*parts[:-1], {key: value for key, value in parts[-1].items() if key != "added"}]

    def added(*given: Any, **options: Any) -> None:
        others_add("before")
        if how == "killed after":
            ingest(*given, **options)
        raise OutputError("the store is in use", str(tmp_path / "train.zarr")) if how == "it fails" else Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrivals, "ingest", added)
        with pytest.raises(OutputError if how == "it fails" else Killed):
            night(growing)
    others_add("after")
    if earlier and others and how != "killed after":
        with pytest.raises(DataError, match="an earlier version of bigsvm added rows"):
            night(growing)
        return
    there = how == "killed after"
    assert [waits.name for waits in steps.waiting(growing)] == ([] if there else ["a.svm"])
    assert night(growing)["added"] == ({} if there else {str(path): 20})
    assert open_store(tmp_path / "train.zarr").n_samples == 220 + 30 * len(others)
    assert steps.waiting(growing) == []


def test_a_file_that_failed_is_added_once_it_is_repaired(growing: Job, tmp_path: Path) -> None:
    bad = deliver(tmp_path, "a.svm")
    good = bad.read_text()
    bad.write_text(good + "1 1:x\n")
    with pytest.raises(DataError, match=r"a\.svm:21"):
        night(growing)
    bad.write_text(good)
    assert night(growing)["added"] == {str(bad): 20}
    assert open_store(tmp_path / "train.zarr").n_samples == 220


def test_a_file_is_known_by_its_bytes(growing: Job, tmp_path: Path) -> None:
    """Renamed, or reached by another path, it is not added again; and not twice under two names at one time."""
    first = deliver(tmp_path, "a.svm")
    shutil.copy(first, tmp_path / "in" / "b.svm")
    assert night(growing)["added"] == {str(first): 20}
    first.rename(tmp_path / "in" / "c.svm")
    (tmp_path / "link").symlink_to(tmp_path)
    assert night(growing)["added"] == {}
    linked = read_job(tmp_path / "link" / "job.toml")
    assert steps.waiting(linked) == []
    assert open_store(tmp_path / "train.zarr").n_samples == 220


@pytest.mark.parametrize("how", ["the notes are lost", "another job", "another job, meanwhile"])
def test_rows_that_the_store_says_it_has_are_not_added_again(growing: Job, tmp_path: Path, how: str) -> None:
    path, other = deliver(tmp_path, "a.svm"), growing
    if "another" in how:
        config = (tmp_path / "job.toml").read_text().replace('"reg"', '"other"')
        (tmp_path / "other.toml").write_text(config)
        other = read_job(tmp_path / "other.toml")
        other.folder.mkdir(parents=True)
    told: list[Any] = []
    if how == "another job, meanwhile":
        with pytest.MonkeyPatch.context() as patch:
            looked = arrivals._waiting

            def slowly(*given: Any) -> list[Path]:
                patch.undo()
                waits = looked(*given)
                assert steps.arrive(growing) == {str(path): 20}
                return waits

            patch.setattr(arrivals, "_waiting", slowly)
            assert steps.arrive(other) == {}
    else:
        assert steps.arrive(growing) == {str(path): 20}
        if other is growing:
            (growing.folder / arrivals.NOTES).unlink()
        assert steps.waiting(other) == []
        assert steps.arrive(other, told.append) == {}
        assert [path.name in event.message for event in told] == [True]
    assert steps.arrive(other, told.append) == {}
    assert len(told) <= 1, "it is told once"
    assert open_store(tmp_path / "train.zarr").n_samples == 220
    path.write_text(text(7, 20))
    with pytest.raises(DataError, match="changed since its rows were put into the store"):
        steps.arrive(other)


def test_files_and_stores_that_were_exchanged_are_named(growing: Job, tmp_path: Path) -> None:
    path = deliver(tmp_path, "a.svm")
    night(growing)
    path.write_text(text(7, 20))
    with pytest.raises(DataError, match=r"a\.svm: changed since its rows were put into the store"):
        night(growing)
    path.write_text(text(5, 20))
    assert night(growing)["status"] == "unchanged"
    ingest(tmp_path / "train.svm", tmp_path / "train.zarr", overwrite=True)
    with pytest.raises(DataError, match=r"not the store that the rows of .*a\.svm were added to .*delete"):
        night(growing)
    notes = growing.folder / arrivals.NOTES
    notes.write_text(notes.read_text()[:-9])
    with pytest.raises(DataError, match="not the notes of a job"):
        steps.waiting(growing)


def test_a_store_that_was_exchanged_while_rows_were_added(growing: Job, tmp_path: Path) -> None:
    deliver(tmp_path, "a.svm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrivals, "ingest", lambda *given, **options: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            night(growing)
    (tmp_path / "other.svm").write_text(text(9, 50))
    ingest(tmp_path / "other.svm", tmp_path / "train.zarr", overwrite=True)
    with pytest.raises(DataError, match="the store was replaced while the rows"):
        night(growing)


def test_a_bad_line_is_named_and_everything_stays(growing: Job, tmp_path: Path, retrain: Retrain) -> None:
    path = deliver(tmp_path, "a.svm")
    path.write_text(path.read_text() + "1 2:nan\n")
    before = open_store(tmp_path / "train.zarr").fingerprint
    said = retrain(tmp_path / "job.toml", "--quiet")
    assert (said.code, said.err.count("\n")) == (65, 1)
    assert "a.svm" in said.err
    assert "21" in said.err
    assert open_store(tmp_path / "train.zarr").fingerprint == before
    assert registry.current_version(tmp_path / "reg") == 1
    path.write_text(text(5, 20))
    assert retrain(tmp_path / "job.toml", "--quiet").code == 0


@pytest.mark.parametrize(
    ("make", "code", "what"),
    [
        (lambda path: path.symlink_to("nothing"), 66, "a link to nothing"),
        (lambda path: path.symlink_to(path), 66, "a link to itself"),
        (lambda path: path.mkdir(), 65, "is a folder"),
        (os.mkfifo, 65, "is a pipe or a device"),
    ],
)
def test_what_is_no_file_is_named_with_a_remedy(
    make: Any, code: int, what: str, growing: Job, tmp_path: Path, retrain: Retrain
) -> None:
    """It would be there every night: no failure of a disk, which another run may not meet."""
    path = tmp_path / "in" / "b.svm"
    path.parent.mkdir()
    make(path)
    for dry in ((), ("--dry-run",)):
        said = retrain(tmp_path / "job.toml", "--json", *dry)
        error = json.loads(said.out)["error"]
        assert (said.code, error["where"]) == (code, str(path))
        assert what in error["message"]
        assert "move it away" in error["hint"]


@pytest.mark.parametrize(
    ("number", "code", "told"), [(errno.EACCES, 66, "may this user read it"), (errno.EIO, 74, "check the disk")]
)
def test_a_file_that_cannot_be_read_is_named(
    number: int, code: int, told: str, growing: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = deliver(tmp_path, "a.svm")

    def refused(path: Path) -> str:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(arrivals, "file_digest", refused)
    with pytest.raises(BigSVMError, match=told) as caught:
        arrivals.waiting(growing)
    assert (caught.value.code, caught.value.where) == (code, str(path))


def test_a_store_that_cannot_grow_is_named(job: Place, tmp_path: Path) -> None:
    read = read_job(job(WARM))
    deliver(tmp_path, "a.svm")
    (tmp_path / "train.zarr" / "bigsvm-manifest.json").unlink()
    with pytest.raises(MissingInput, match="rows can be appended only to a store that bigsvm ingest made"):
        night(read)


def test_a_fit_that_was_stopped_keeps_what_it_began_with(growing: Job, tmp_path: Path) -> None:
    deliver(tmp_path, "a.svm")
    night(growing)
    second = registry.current(tmp_path / "reg")
    deliver(tmp_path, "b.svm", 6, 60)
    killed_in_the_fit(growing)
    registry.rollback(tmp_path / "reg")
    document = night(growing)
    assert (document["status"], document["fitted"]) == ("promoted", "resumed")
    assert document["fit"]["warm_start"]["model"] == model_digest(str(second))


def test_a_fit_whose_beginning_is_another_model_by_now_begins_again(growing: Job, tmp_path: Path) -> None:
    first = registry.current(tmp_path / "reg")
    deliver(tmp_path, "a.svm")
    night(growing)
    second = registry.current(tmp_path / "reg")
    assert first is not None
    assert second is not None
    deliver(tmp_path, "b.svm", 6, 60)
    killed_in_the_fit(growing)
    began, other = model_digest(str(second)), model_digest(str(first))
    shutil.rmtree(second)
    shutil.copytree(first, second)
    assert began != other
    assert Start.of({"model": str(second), "digest": began}) is None
    document = night(growing)
    assert document["fitted"] != "resumed"
    assert document["fit"]["warm_start"]["model"] == other


def test_where_a_fit_cannot_go_on_it_begins_at_zero_and_says_why(growing: Job, tmp_path: Path) -> None:
    (tmp_path / "other.svm").write_text(text(9, 250))
    ingest(tmp_path / "other.svm", tmp_path / "train.zarr", overwrite=True)
    start = steps.start_of(growing, steps.detect(growing))
    assert (start.model, start.why_not) == (
        None, "its rows are not the first of the store, as `ingest --append` has it",
    )  # fmt: skip
    assert "warm_start" not in night(growing)["fit"]
    (tmp_path / "few.svm").write_text(text(9, 100))
    ingest(tmp_path / "few.svm", tmp_path / "train.zarr", overwrite=True)
    assert "250 rows, but the store has only 100" in steps.start_of(growing, steps.detect(growing)).why_not


def test_a_dry_run_says_what_arrives_and_where_the_fit_starts(growing: Job, tmp_path: Path, retrain: Retrain) -> None:
    path, config = deliver(tmp_path, "a.svm"), tmp_path / "job.toml"
    before = {entry: entry.stat().st_mtime_ns for entry in tmp_path.rglob("*")}
    said = retrain(config, "--dry-run", "--json").document["result"]
    assert (said["would"], said["would_add"], said["current"]) == ("train", [str(path)], 1)
    assert said["starts_from"] == str(registry.current(tmp_path / "reg"))
    lines = retrain(config, "--dry-run").out.splitlines()
    assert lines[0] == "would: add 1 file, then train (files wait to be added: 1)"
    assert lines[2] == "gates: sound, shape, gap <= 0.0001"
    assert {entry: entry.stat().st_mtime_ns for entry in tmp_path.rglob("*")} == before


def test_probabilities_are_held_against_how_often_they_are_right(job: Place, retrain: Retrain, tmp_path: Path) -> None:
    fit, gates = 'calibrate = "sigmoid"', "max_calibration_error = 1.0\nmax_batch_ms = 1e9\nbatch_rows = 50"
    document = retrain(job(fit=fit, gates=gates), "--json", "--quiet").document["result"]
    model, holdout = load_model(registry.current(tmp_path / "reg")), open_store(tmp_path / "holdout.zarr")
    block = holdout.read(holdout.refs(1000)[0])
    sure = model.predict_proba(block.X)
    given = sure.argmax(axis=1)
    sure, right, error = sure.max(axis=1), given == block.y, 0.0
    for low in range(10):
        here = np.floor(sure * 10).clip(max=9) == low
        error += abs(sure[here].sum() - right[here].sum()) / len(right)
    assert document["metrics"]["calibration_error"] == pytest.approx(error, abs=1e-12)
    assert 0 < error < 0.2
    (batch,) = [gate for gate in document["gates"] if gate["name"] == "max_batch_ms"]
    assert batch["message"].startswith("labels of 50 rows take ")
    for refusing in ("max_calibration_error = 0", "max_batch_ms = 1e-9"):
        said = retrain(job(fit='calibrate = "sigmoid"\nc = 2.0', gates=refusing), "--quiet")
        assert said.code == 76
        assert f"refused by gate {refusing.split(' ')[0]}: " in said.err
    assert registry.current_version(tmp_path / "reg") == 1
