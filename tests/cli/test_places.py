"""Where outputs may lie: in no store, in no input, not in one another; and nothing that could be waited for."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import bigsvm as package
from bigsvm.testing.problems import random_problem
from tests.cli.conftest import Bigsvm
from tests.cli.test_main import PROGRAM
from tests.cli.test_outputs import files_of


@pytest.fixture
def data(tmp_path: Path, store: Path) -> Path:
    """A store of this test's own, and a link to it, in the folder where commands run."""
    (tmp_path / "link").symlink_to("data.zarr")
    return Path(shutil.copytree(store, tmp_path / "data.zarr"))


@pytest.mark.parametrize(
    "args",
    [
        ["-o", "M", "--run", "M/run"],
        ["-o", "M", "--run", "M/a/b"],
        ["-o", "M", "--run", "./x/../M/run"],
        ["-o", "R/m", "--run", "R"],
        ["-o", "R/checkpoint/m", "--run", "R"],
        ["-o", "data.zarr/m"],
        ["-o", "data.zarr/X/m"],
        ["-o", "link/m"],
        ["-o", "m", "--run", "data.zarr/X/run"],
        ["-o", "m", "--run", "link/run"],
        ["-o", "data.zarr", "--overwrite"],
        ["-o", "other.zarr/m"],  # a store, though not the one that is read
        ["-o", "m" * 300],
        ["-o", "m", "--run", "r" * 300],
        ["-o", "/".join(["m" * 200] * 25)],
    ],
)
def test_a_fit_that_could_not_be_written_is_refused_before_the_work(
    bigsvm: Bigsvm, data: Path, monkeypatch: pytest.MonkeyPatch, args: list[str]
) -> None:
    shutil.copytree(data, "other.zarr")
    before = files_of(Path())
    monkeypatch.setattr("bigsvm.run.fit.fit.fit_store", lambda *_: pytest.fail("it began"))
    said = bigsvm("fit", "link" if "link/m" in args else "data.zarr", *args)
    assert (said.code, said.out) == (73, "")
    assert said.err.count("\n") == 1
    assert files_of(Path()) == before


def test_model_and_record_are_not_one_folder_by_any_name(bigsvm: Bigsvm, data: Path) -> None:
    Path("same").mkdir()
    Path("alias").symlink_to("same")
    assert bigsvm("fit", data, "-o", "same", "--run", "alias").code == 2


def test_a_run_may_hold_its_model(bigsvm: Bigsvm, data: Path) -> None:
    assert bigsvm("fit", data, "-o", "R/model", "--run", "R").code == 0
    assert bigsvm("fit", data, "-o", "R/model", "--run", "R", "--resume").out.endswith("nothing was repeated.\n")
    assert sorted(path.name for path in Path("R").iterdir()) == ["events.jsonl", "model", "run.json"]


def test_parquet_folders_are_stores_too(bigsvm: Bigsvm) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    Path("rows").mkdir()
    pq.write_table(pa.table({"label": [0, 1], "a": [0.0, 1.0]}), "rows/part.parquet")
    said = bigsvm("fit", "rows", "-o", "rows/m")
    assert (said.code, "the model would lie in the store" in said.err) == (73, True)
    assert os.listdir("rows") == ["part.parquet"]


@pytest.mark.parametrize("out", ["data.zarr/p.csv", "link/X/p.jsonl", "data.zarr/p.zarr", "m/p.csv", "p" * 300])
def test_predictions_go_into_no_store_and_no_model(bigsvm: Bigsvm, data: Path, model: Path, out: str) -> None:
    shutil.copytree(model, "m")
    before = files_of(Path())
    assert bigsvm("predict", "m", "data.zarr", "-o", out).code == 73
    assert files_of(Path()) == before


def test_other_outputs_go_into_no_store_either(bigsvm: Bigsvm, data: Path, model: Path) -> None:
    Path("a.svm").write_text("1 1:1\n-1 1:2\n")
    before = files_of(Path())
    assert bigsvm("dump", data, "data.zarr/X/a.svm").code == 73
    assert bigsvm("ingest", "a.svm", "data.zarr/X/b.zarr").code == 73
    result = package.fit(random_problem(20, 2, seed=0))
    with pytest.raises(package.BigSVMError, match="lies in the store"):
        result.save_model("data.zarr/m")
    assert files_of(Path()) == before


@pytest.mark.parametrize("command", ["predict", "dump"])
def test_a_pipe_by_name_is_refused_and_not_waited_for(bigsvm: Bigsvm, store: Path, model: Path, command: str) -> None:
    os.mkfifo("pipe")
    args = ["predict", model, store, "-o"] if command == "predict" else ["dump", store]
    for overwrite in ([], ["--overwrite"]):
        said = bigsvm(*args, "pipe", *overwrite)
        assert (said.code, "a pipe or a device" in said.err) == (73, True)
    assert Path("pipe").is_fifo()


@pytest.mark.parametrize("command", ["predict", "dump"])
def test_descriptors_of_the_shell_are_written_to(store: Path, model: Path, command: str) -> None:
    args = ["predict", str(model), str(store), "-o"] if command == "predict" else ["dump", str(store)]
    read, write = os.pipe()
    with subprocess.Popen([*PROGRAM, *args, f"/dev/fd/{write}", "--quiet"], pass_fds=[write]) as process:
        os.close(write)
        with open(read, "rb") as lines:
            assert lines.read().count(b"\n") == 1500
    assert process.returncode == 0


def test_predictions_into_nothing(bigsvm: Bigsvm, store: Path, model: Path) -> None:
    assert bigsvm("predict", model, store, "-o", "/dev/null").code == 0


@pytest.mark.parametrize("command", ["resume", "fit"])
@pytest.mark.parametrize("name", ["run.json", "events.jsonl"])
@pytest.mark.parametrize("what", ["a link out", "a pipe"])
def test_a_record_of_links_and_pipes_is_refused(bigsvm: Bigsvm, data: Path, command: str, name: str, what: str) -> None:
    """Nobody waits for a pipe, and nothing is written to where a link leads."""
    assert bigsvm("fit", data, "-o", "m", "--max-passes", "1", "--allow-unconverged").code == 0
    Path("m.run", name).rename("elsewhere")
    if what == "a pipe":
        os.mkfifo(f"m.run/{name}")
    else:
        Path("m.run", name).symlink_to("../elsewhere")
    before = Path("elsewhere").read_bytes()
    said = (
        bigsvm("resume", "m.run")
        if command == "resume"
        else bigsvm("fit", data, "-o", "n", "--run", "m.run", "--resume")
    )
    assert said.code == 65
    assert name in said.err
    assert Path("elsewhere").read_bytes() == before


@pytest.mark.parametrize(
    "args", [["fit", "-o", "m"], ["predict", "MODEL"], ["evaluate", "MODEL"], ["inspect"], ["plan"]]
)
def test_an_input_with_a_name_that_none_can_have_is_not_there(bigsvm: Bigsvm, model: Path, args: list[str]) -> None:
    said = bigsvm(*[str(model) if arg == "MODEL" else arg for arg in args], "s" * 300)
    assert (said.code, said.err.count("\n")) == (66, 1)


@pytest.mark.parametrize(
    "args",
    [
        *([name, "URI", "data.zarr"] for name in ("predict", "evaluate", "certify")),
        *([name, "URI"] for name in ("resume", "rollback", "history", "report", "plot", "watch")),
        ["export", "URI", "m.onnx"],
        ["promote", "reg", "URI"],
    ],
    ids=lambda args: args[0],
)
@pytest.mark.parametrize("uri", ["s3://bucket/m", "https://server/m"])
def test_models_and_runs_are_read_from_local_disks(bigsvm: Bigsvm, data: Path, args: list[str], uri: str) -> None:
    before = files_of(data.parent)
    said = bigsvm(*[uri if arg == "URI" else arg for arg in args])
    assert (said.code, said.err.count("\n")) == (66, 1)
    assert f"{uri}: models, runs and registries are read from local disks only" in said.err
    assert files_of(data.parent) == before


def test_scratch_is_on_a_local_disk(bigsvm: Bigsvm, data: Path) -> None:
    said = bigsvm("fit", data, "--scratch", "s3://bucket/s")
    assert (said.code, "only to local disks" in said.err) == (73, True)
    assert not Path("s3:").exists()
