"""bigsvm tune, and probabilities, from the command line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr

import bigsvm as package
from bigsvm.errors import DataError, OutputError
from bigsvm.files.sealed_json import write_sealed
from bigsvm.run.fit.checkpoint import Checkpoints
from bigsvm.run.fit.outcome import FitResult
from bigsvm.run.tune.folder import claim, claim_for_curve
from bigsvm.store.ingest.ingest import ingest
from bigsvm.store.sealing.seal import seal
from bigsvm.testing.problems import random_problem
from tests.cli.conftest import Bigsvm

FEW = ("--Cs", "0.1,1", "--folds", "3", "--tol", "1e-2", "--memory", "64MiB")


@pytest.fixture
def folded(tmp_path: Path) -> Path:
    """A store with columns `patient` and `fold` among its labels."""
    path = tmp_path / "folded.zarr"
    X, y = random_problem(120, 4, seed=31, noise=0.2)
    ingest((X, y), path)
    obs = zarr.open_group(path, mode="r+")["obs"]
    for name, values in (("patient", np.arange(120) % 11), ("fold", np.arange(120) % 4)):
        column = obs.create_array(name, shape=(120,), chunks=(60,), dtype=np.int64)
        column[:] = values
    seal(path)
    return path


def test_a_search_from_its_table_to_its_model(bigsvm: Bigsvm, store: Path) -> None:
    said = bigsvm("tune", store, *FEW, "--refit", "--calibrate", "isotonic", "-o", "m", "--csv", "t.csv", "--json")
    assert said.code == 0, said.err
    result = said.document["result"]
    assert said.document["status"] == "converged"
    assert [row["C"] for row in result["candidates"]] == [0.1, 1.0]
    assert all(row["relative_gap"] <= 1e-2 and len(row["models"]) == 3 for row in result["candidates"])
    assert result["params"] == {"C": result["candidates"][result["best"]]["C"]}
    assert sum(result["folds"]["n_samples"]) == 1500
    assert result["form"] == "shared"
    assert (result["model"], result["run"]) == ("m", "m.run")
    assert Path("t.csv").read_text().startswith("C,class_weight,gamma,accuracy,accuracy_se,")
    model = package.load_model("m")
    assert model.about["problem"]["C"] == [result["params"]["C"]]
    assert model.about["calibration"]["folds"]["n_rows"] == 1500
    # Again: nothing is trained anew, and the model that is there is this one.
    again = bigsvm("tune", store, *FEW, "--refit", "--calibrate", "isotonic", "-o", "m", "--quiet")
    assert again.code == 0, again.err
    assert "chosen" in again.out
    assert "all on the same passes" in again.out
    assert bigsvm("certify", "m", store, "--json").document["result"]["certificate"] == "proved"
    lines = bigsvm("predict", "m", store, "--proba").out.splitlines()
    assert len(lines) == 1500
    first = json.loads(lines[0])
    assert sum(first["proba"]) == pytest.approx(1.0)
    assert bigsvm("predict", "m", store, "--proba", "--format", "csv").out.splitlines()[0].count(",") == 2
    for name in ("p.parquet", "p.zarr"):
        assert bigsvm("predict", "m", store, "--proba", "-o", name).code == 0
    assert zarr.open_group("p.zarr")["proba"].shape == (1500, 2)


@pytest.mark.usefixtures("streaming")
def test_checkpoints_of_the_last_fit_stay_until_its_model_is_written(
    bigsvm: Bigsvm, folded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of them, each as large as the state of the fit, stayed for ever."""
    monkeypatch.setattr(Checkpoints, "due", lambda self: self.written == 0)
    # Dense rows, as tests/run/test_tune_stopped.py has in searches that stream: sparse ones are compiled for anew.
    command = ["tune", folded, *FEW, "--loss", "hinge", "--refit", "-o", "m"]

    def full(result: FitResult, path: Path, overwrite: bool) -> None:
        raise OutputError("cannot write: No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr("bigsvm.run.tune.search.choose", lambda rows, metric: (1, 1))
        patch.setattr("bigsvm.cli.commands.training.tune.save_once", full)
        assert bigsvm(*command).code == 73
    assert len(list(Path("m.run/checkpoint").glob("refit-*/*"))) > 0
    # A choice of another C was told that the checkpoint is of another run.
    with monkeypatch.context() as patch:
        patch.setattr("bigsvm.run.tune.search.choose", lambda rows, metric: (1, 0))
        patch.setattr("bigsvm.cli.commands.training.tune.save_once", full)
        other = bigsvm(*command, "--choose", "one-se")
        assert (other.code, "No space left" in other.err) == (73, True), other.err
    assert bigsvm(*command).code == 0
    assert Path("m/model.json").exists()
    assert not Path("m.run/checkpoint").exists()


def test_folds_and_groups_are_columns_of_the_store(bigsvm: Bigsvm, folded: Path) -> None:
    by_column = bigsvm("tune", folded, "--Cs", "1", "--fold", "obs/fold", "--json").document["result"]
    assert by_column["folds"]["names"] == ["0", "1", "2", "3"]
    assert by_column["folds"]["n_samples"] == [30] * 4
    by_group = bigsvm("tune", folded, "--Cs", "1", "--folds", "3", "--group", "obs/patient", "--json").document[
        "result"
    ]
    assert sorted(by_group["folds"]["n_samples"]) == [33, 43, 44]
    missing = bigsvm("tune", folded, "--group", "obs/hospital")
    assert (missing.code, "no such column" in missing.err) == (65, True)


ONE = ("--Cs", "1", "--folds", "2", "--tol", "1e-2", "--memory", "64MiB", "-o", "s")
KINDS = {
    "search": (),
    "another": ("--seed", "1"),
    "curve": ("--sizes", "0.5"),
    "another curve": ("--sizes", "0.5", "--seed", "1"),
}


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("held", KINDS)
def test_a_search_takes_the_place_of_another_one_only_with_overwrite(
    bigsvm: Bigsvm, folded: Path, held: str, damaged: bool
) -> None:
    """`--overwrite` ended with 65 where the folder held another search, and a curve was written among its files."""
    straight = {}
    for kind, options in KINDS.items():
        first = bigsvm("tune", folded, *ONE[:-1], f"{kind} alone", *options, "--json")
        assert first.code == 0, first.err
        straight[kind] = first.document["result"].get("candidates") or first.document["result"]["sizes"]
    for kind, options in KINDS.items():
        shutil.rmtree("s", ignore_errors=True)
        shutil.copytree(f"{held} alone", "s")
        record = next(Path("s").rglob("search.json"))
        if damaged:
            record.write_text("{}")
        before = {path: path.read_bytes() for path in Path("s").rglob("*") if path.is_file()}
        command = ("tune", folded, *ONE, *options, "--json")
        plain = bigsvm(*command)
        assert plain.code == (0 if kind == held and not damaged else 65), plain.err
        if plain.code:
            assert before == {path: path.read_bytes() for path in before}
            assert "--overwrite" in plain.err
        refused = bigsvm(*command, "--overwrite", "--memory", "1MiB")
        assert (refused.code, [path for path in before if not path.exists()]) == (78, []), "refused, so nothing goes"
        Path("s/notes").mkdir()
        over = bigsvm(*command, "--overwrite")
        assert over.code == 0, over.err
        assert Path("s/notes").exists()
        found = over.document["result"].get("candidates") or over.document["result"]["sizes"]
        assert found == straight[kind]
        of_a_curve = (Path("s/sizes").exists(), Path("s/curve.json").exists())
        assert of_a_curve == ("curve" in kind,) * 2
        assert (Path("s/fits").exists(), Path("s/search.json").exists()) == ("curve" not in kind,) * 2


@pytest.mark.parametrize("claimed", [claim, claim_for_curve])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (["search.json"], "fits/mine.fits"),
        (["search.json"], "fits/mine/thing"),
        (["search.json", "fits/alike-0/fit.json"], "fits/mine/thing"),
        (["search.json", "fits/alike-0/fit.json"], "found.json/thing"),
        (["search.json"], "checkpoint/mine"),
        (["search.json"], "checkpoint/refit-0/mine"),
        (["search.json"], "fits"),
        ([], "search.json"),
        ([], "curve.json"),
        ([], "sizes/mine"),
        ([], "sizes/1/mine"),
        (["sizes/0.5/search.json", "sizes/0.5/fits/alike-0/fit.json"], "sizes/0.5/fits/mine"),
        (["sizes/0.5/search.json", "sizes/0.5/fits/alike-0/fit.json"], "sizes/0.5/fits/mine/thing"),
    ],
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_what_no_search_has_written_stays(
    tmp_path: Path, claimed: Callable[..., None], ours: list[str], theirs: str, overwrite: bool
) -> None:
    """`--overwrite` deleted whatever lay in folders named fits, checkpoint or sizes, and any search.json went."""
    run = tmp_path / "s"
    for name in [*ours, theirs]:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        write_sealed(run / name, {"seed": 1})
    (run / theirs).write_text("of somebody's")
    arguments = (run, {"seed": 2}, overwrite) if claimed is claim else (run, overwrite)
    with pytest.raises(DataError, match="holds "):
        claimed(*arguments)
    assert (run / theirs).read_text() == "of somebody's"
    assert all((run / name).exists() for name in ours)


@pytest.mark.parametrize("claimed", [claim, claim_for_curve])
@pytest.mark.parametrize("theirs", ["", "run.json", "report", "checkpoint/mine", "model"])
@pytest.mark.parametrize("more", [[], ["lock", "events.jsonl", "report.html", "checkpoint/00000001/state.json"]])
def test_the_record_of_a_fit_goes_with_overwrite_alone(
    tmp_path: Path, claimed: Callable[..., None], theirs: str, more: list[str]
) -> None:
    """`tune --refit -o MODEL --overwrite` was refused where a fit had made the model, whose record is MODEL.run."""
    run = tmp_path / "s"
    for name in [*more, "run.json", *([theirs] if theirs else [])]:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text("of somebody's")
    if theirs != "run.json":
        (run / "run.json").write_text(json.dumps({"schema_version": 1, "status": "stopped", "job": {}}))
    before = sorted(run.rglob("*"))
    document = ({"seed": 2},) if claimed is claim else ()
    with pytest.raises(DataError, match="other things" if theirs else "holds the record of a fit.*--overwrite"):
        claimed(run, *document)
    assert sorted(run.rglob("*")) == before
    if theirs:
        with pytest.raises(DataError, match="other things"):
            claimed(run, *document, True)
        assert sorted(run.rglob("*")) == before
        return
    claimed(run, *document, True)
    left = {path.name for path in run.iterdir()} - {"lock"}
    assert left == ({"search.json"} if document else set())


def test_a_search_makes_a_model_anew_that_a_fit_has_made(bigsvm: Bigsvm, store: Path) -> None:
    assert bigsvm("fit", store, "-o", "m").code == 0
    command = ("tune", store, "--Cs", "0.1,1", "--folds", "2", "--refit", "-o", "m")
    refused = bigsvm(*command)
    assert (refused.code, "the record of a fit" in refused.err, "--overwrite" in refused.err) == (65, True, True)
    assert Path("m.run/run.json").exists()
    assert bigsvm(*command, "--overwrite").code == 0
    assert not Path("m.run/run.json").exists()
    assert Path("m.run/found.json").exists()


@pytest.mark.parametrize("options", [(), ("--overwrite",), ("--resume",)], ids=["plain", "over", "resume"])
@pytest.mark.parametrize(
    "there",
    [
        ("search.json", "fits/alike-0/fit.json", "found.json"),
        ("search.json", "fits/", "checkpoint/alike-0/00000001/state", "lock"),  # which was killed
        ("search.json", "lock"),
        ("sizes/0.5/search.json", "curve.json"),
        ("sizes/0.5/checkpoint/alike-0/00000001/state", "lock"),
        ("notes",),
    ],
    ids=["finished", "killed", "begun", "curve", "killed curve", "other things"],
)
def test_no_fit_takes_the_place_of_a_search(
    bigsvm: Bigsvm, folded: Path, there: tuple[str, ...], options: tuple[str, ...]
) -> None:
    """The message asked for another name of the model; a search that was killed lost its checkpoints."""
    for name in there:
        path = Path("m.run", name)
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_text("{}" if name != "lock" else "")
    before = sorted(Path("m.run").rglob("*"))
    refused = bigsvm("fit", folded, "-o", "m", *options, "--json")
    assert refused.code == 73, refused.err
    error = refused.document["error"]
    assert (error["where"], error["hint"]) == ("m.run", "choose another folder for the record of the fit: --run FOLDER")
    assert (("search" in error["message"]), sorted(Path("m.run").rglob("*"))) == (there != ("notes",), before)
    done = bigsvm("fit", folded, "-o", "m", "--run", "elsewhere", *options)
    assert (done.code, sorted(Path("m.run").rglob("*"))) == (0, before)


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["--Cs", "1:2"], 2, "neither LOW:HIGH:N"),
        (["--Cs", "1,1"], 2, "twice"),
        (["--folds", "1"], 2, "1 fold"),
        (["--gammas", "0.1"], 2, "has no gamma"),
        (["--gammas", "x", "--kernel", "rbf"], 2, "not a list of numbers"),
        (["--class-weights", "heavy"], 2, "neither 'balanced'"),
        (["--metric", "r2"], 2, "unknown metric 'r2'"),
        (["--calibrate", "platt"], 2, "no model of classes to calibrate"),
        (["--memory", "1MiB"], 78, "would do"),
        (["-o", "taken"], 65, "holds other things"),
        (["-o", "a", "--run", "b"], 2, "both name the folder"),
        (["--fold", "obs/label", "--group", "obs/label"], 2, "exclude"),
        (["--fold", "obs/label"], 65, "all rows of class"),
    ],
)
def test_failures_in_one_line(bigsvm: Bigsvm, store: Path, args: list[str], code: int, said: str) -> None:
    Path("taken").mkdir()
    (Path("taken") / "thing").write_text("of somebody's")
    found = bigsvm("tune", store, *args)
    assert found.code == code, found.err
    assert said in found.err
    assert found.err.count("\n") <= 2
    assert (Path("taken") / "thing").read_text() == "of somebody's"


def test_probabilities_need_a_calibration(bigsvm: Bigsvm, store: Path, model: Path) -> None:
    found = bigsvm("predict", model, store, "--proba", "-o", "p.jsonl")
    assert (found.code, "gives no probabilities" in found.err) == (2, True)
    assert not Path("p.jsonl").exists()
    assert bigsvm("predict", model, store, "--proba", "--scores").code == 2


def test_pairs_of_classes_that_no_linear_solver_tells_apart_are_named(bigsvm: Bigsvm, store: Path) -> None:
    said = bigsvm("tune", store, *FEW, "--multi-class", "ovo")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "no linear solver for loss 'squared_hinge' with bias 'augmented' tells pairs of classes apart" in said.err
    assert "--multi-class ovo" in said.err
    assert "-s smo --loss hinge" in said.err
