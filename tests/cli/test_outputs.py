"""What is named as an output: what may be replaced, what is refused before any work, and closed streams."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import zarr

from bigsvm.errors import OutputError
from bigsvm.files.outputs import new_output
from bigsvm.files.space import Share
from bigsvm.model.model_files import model_fingerprint
from bigsvm.store.formats.opener import open_store
from tests.cli.conftest import Bigsvm
from tests.cli.test_main import PROGRAM
from tests.full_disk import files_of_at_most
from tests.model_documents import read, rewrite


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_predictions_replace_predictions_and_nothing_else(bigsvm: Bigsvm, store: Path, model: Path) -> None:
    data = shutil.copytree(store, "rows.zarr")
    before = files_of(Path(data))
    for out in ("rows.zarr", "./rows.zarr/"):
        said = bigsvm("predict", model, "rows.zarr", "-o", out, "--overwrite")
        assert (said.code, "is the rows to predict" in said.err) == (73, True)
    said = bigsvm("predict", model, store, "-o", "rows.zarr", "--overwrite")
    assert (said.code, "holds no predictions" in said.err) == (73, True)
    assert files_of(Path(data)) == before
    assert bigsvm("predict", model, store, "-o", "p.zarr").code == 0
    assert bigsvm("predict", model, store, "-o", "p.zarr", "--overwrite").code == 0
    assert zarr.open_group("p.zarr", mode="r")["label"].shape == (1500,)
    bigsvm("dump", store, "rows.svm")
    Path("narrow.csv").write_text("label,a\n" + "".join(f"{k % 2},{k}.5\n" for k in range(200)))
    text = Path("rows.svm").read_bytes()
    assert bigsvm("predict", model, "rows.svm", "-o", "rows.svm", "--overwrite").code == 73
    assert Path("rows.svm").read_bytes() == text


def test_ingest_replaces_stores_of_its_own_only(bigsvm: Bigsvm) -> None:
    zarr.create_group("theirs.zarr").create_array("precious", data=np.arange(3))
    Path("a.svm").write_text("1 1:1\n-1 1:2\n")
    before = files_of(Path("theirs.zarr"))
    assert bigsvm("ingest", "a.svm", "theirs.zarr", "--overwrite").code == 73
    assert files_of(Path("theirs.zarr")) == before


def test_standard_output_by_its_file_name(bigsvm: Bigsvm, store: Path, model: Path) -> None:
    assert bigsvm("predict", model, store, "-o", "/dev/stdout", "--json").code == 2


@pytest.mark.parametrize("name", [".", "/", "", ".."])
def test_no_name_for_a_model(bigsvm: Bigsvm, store: Path, name: str) -> None:
    said = bigsvm("fit", store, "-o", name)
    assert (said.code, "not a valid name for an output" in said.err) == (73, True)


def test_names_are_checked_before_the_work(bigsvm: Bigsvm, store: Path) -> None:
    said = bigsvm("fit", store, "-o", "m" * 248)
    assert (said.code, "the name is too long" in said.err) == (73, True)
    assert bigsvm("fit", store, "-o", "same", "--run", "same").code == 2
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("streams", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_failure(store: Path, tmp_path: Path, streams: str) -> None:
    command = ["sh", "-c", f'"$@" {streams}', "sh", *PROGRAM, "fit", str(store), "-o", str(tmp_path / "m"), "--json"]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "m" / "model.json").exists()


@pytest.mark.parametrize("where", ["a reader that has gone", "a full disk"])
@pytest.mark.parametrize("flags", [[], ["--log-format", "json"]], ids=["text", "json"])
def test_a_warning_that_nobody_can_read_does_not_end_the_work(
    where: str, flags: list[str], store: Path, tmp_path: Path
) -> None:
    """It ended with 0, and there was no model: what reads standard error was taken for what reads the output."""
    shutil.copytree(store, tmp_path / "unsealed.zarr")
    for part in (tmp_path / "unsealed.zarr").glob("bigsvm-manifest*"):
        part.unlink()
    if where == "a full disk":
        handle = os.open("/dev/full", os.O_WRONLY)
    else:
        reads, handle = os.pipe()
        os.close(reads)
    command = [*PROGRAM, "fit", str(tmp_path / "unsealed.zarr"), "-o", str(tmp_path / "m"), "--json", *flags]
    plain = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}  # by which click writes through buffers
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=handle, check=False, env={**os.environ, **plain})
    os.close(handle)
    warned = [message for message in json.loads(done.stdout)["warnings"] if "was not sealed" in message]
    assert (done.returncode, len(warned)) == (0, 1)
    assert (tmp_path / "m" / "model.json").exists()


@pytest.mark.parametrize(
    "command",
    [["predict", "MODEL", "STORE"], ["dump", "STORE", "-"], ["dump", "STORE", "-", "--format", "jsonl"],
     ["export", "MODEL", "-", "--format", "liblinear"], ["report", "MODEL", "-o", "-"]],
)  # fmt: skip
def test_data_that_were_asked_for_on_a_closed_stream_are_a_failure(
    store: Path, model: Path, command: list[str]
) -> None:
    """They ended with 0, and were nowhere."""
    named = [{"STORE": str(store), "MODEL": str(model)}.get(part, part) for part in command]
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *PROGRAM, *named], capture_output=True, text=True, check=False)
    assert (done.returncode, "standard output: cannot write: it is closed" in done.stderr) == (73, True)


@pytest.mark.parametrize(
    "command",
    [["fit", "STORE", "-o", "m", "--report", "-"], ["tune", "STORE", "-o", "-", "--Cs", "1:2:2"],
     ["tune", "STORE", "--run", "-", "--Cs", "1:2:2"], ["tune", "STORE", "--csv", "-", "--Cs", "1:2:2"],
     ["watch", "RUN", "--once", "--openmetrics", "-"], ["plot", "RUN", "-o", "-"], ["promote", "-", "MODEL"],
     ["ingest", "STORE", "-"], ["fit", "STORE", "-o", "-"], ["import", "MODEL", "-"], ["demo", "--dir", "-"]],
    ids=lambda parts: "-".join(parts[:3]).replace("/", "-"),
)  # fmt: skip
def test_no_output_is_a_file_called_minus(bigsvm: Bigsvm, store: Path, model: Path, command: list[str]) -> None:
    """`-` is standard output for every command; where an output cannot go there, that is said before any work."""
    named = [{"STORE": str(store), "RUN": f"{model}.run", "MODEL": str(model)}.get(part, part) for part in command]
    said = bigsvm(*named)
    assert (said.code, "cannot go to standard output" in said.err) == (73, True)
    assert not any(Path().iterdir())


@pytest.fixture
def shut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder `shut` that may not be searched, as if this user were not root."""

    def refusing(call: Callable[..., Any]) -> Callable[..., Any]:
        def refused(path: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(path, str | Path) and Path(path).absolute().is_relative_to(folder) and Path(path) != folder:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return call(path, *args, **kwargs)

        return refused

    Path("shut").mkdir()
    folder = Path("shut").absolute()
    for name in ("stat", "lstat", "open", "mkdir", "scandir", "listdir"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))


@pytest.mark.parametrize("out", ["shut/out", "shut/in/out"])
@pytest.mark.parametrize(
    "command",
    [["fit", "STORE", "-o", "OUT"], ["fit", "STORE", "-o", "m", "--run", "OUT"],
     ["fit", "STORE", "-o", "m", "--report", "OUT"], ["tune", "STORE", "--Cs", "1:2:2", "-o", "OUT"],
     ["tune", "STORE", "--Cs", "1:2:2", "--run", "OUT"], ["tune", "STORE", "--Cs", "1:2:2", "--csv", "OUT"],
     ["plot", "RUN", "-o", "OUT.svg"], ["promote", "OUT", "MODEL"], ["ingest", "STORE", "OUT"],
     ["predict", "MODEL", "STORE", "-o", "OUT"], ["dump", "STORE", "OUT"], ["export", "MODEL", "OUT.npz"],
     ["import", "MODEL", "OUT"], ["demo", "--dir", "OUT"], ["report", "MODEL", "-o", "OUT"]],
    ids=lambda parts: "-".join(part for part in parts if part.islower()),
)  # fmt: skip
def test_an_output_where_nobody_may_search_is_told_as_an_output(
    bigsvm: Bigsvm, store: Path, model: Path, shut: None, command: list[str], out: str
) -> None:
    places = {"STORE": str(store), "RUN": f"{model}.run", "MODEL": str(model)}
    said = bigsvm(*(places.get(part, part.replace("OUT", out)) for part in command))
    assert (said.code, "ermission denied" in said.err or "cannot write there" in said.err) == (73, True), said.err
    assert [path.name for path in Path().iterdir()] == ["shut"]


@pytest.mark.parametrize(
    "command", [["predict", "MODEL", "STORE", "-o", "./-"], ["dump", "STORE", "./-", "--format", "jsonl"],
                ["report", "MODEL", "-o", "./-"]], ids=lambda parts: parts[0],
)  # fmt: skip
def test_a_file_of_that_name_may_be_written(bigsvm: Bigsvm, store: Path, model: Path, command: list[str]) -> None:
    if command[0] == "report":
        pytest.importorskip("matplotlib")
    assert bigsvm(*({"STORE": str(store), "MODEL": str(model)}.get(part, part) for part in command)).code == 0
    assert Path("-").stat().st_size > 0


def test_a_path_that_is_not_utf8_is_valid_json(store: Path, tmp_path: Path) -> None:
    command = [*map(str.encode, PROGRAM), b"fit", str(store).encode(), b"-o", b"\xff.model", b"--json", b"--quiet"]
    done = subprocess.run(command, capture_output=True, check=True, cwd=tmp_path)
    assert json.loads(done.stdout.decode())["result"]["model"] == "\\xff.model"


def test_a_scheduler_file_that_is_none(bigsvm: Bigsvm, store: Path) -> None:
    Path("s.json").write_text("1 1:1\n")
    said = bigsvm("fit", store, "--scheduler-file", "s.json")
    assert (said.code, "not a scheduler file" in said.err) == (65, True)


def test_a_class_has_one_weight(bigsvm: Bigsvm, store: Path) -> None:
    assert bigsvm("fit", store, "--class-weight", "1=2,1=3").code == 2


def test_a_tolerance_below_rounding_is_not_proved(bigsvm: Bigsvm, store: Path) -> None:
    said = bigsvm("fit", store, "--tol", "1e-300", "--max-passes", "60", "--json")
    assert said.code == 4
    assert said.document["result"]["relative_gap"] > 0


def test_whole_numbers_beyond_64_bits_as_classes(bigsvm: Bigsvm) -> None:
    Path("a.svm").write_text("1e308 1:1\n-1e308 1:-1\n")
    assert bigsvm("ingest", "a.svm", "a.zarr").code == 0
    assert bigsvm("fit", "a.zarr", "-o", "a.model").code == 0
    said = bigsvm("predict", "a.model", "a.zarr", "--format", "csv")
    assert [float(line) for line in said.out.split()] == [1e308, -1e308]


def test_classes_out_of_order_are_refused(bigsvm: Bigsvm, store: Path, model: Path) -> None:
    shutil.copytree(model, "m")
    rewrite(Path("m"), classes=read(Path("m"))["classes"][::-1])
    assert bigsvm("predict", "m", store).code == 65


def test_quiet_commands_say_what_was_asked_and_nothing_of_what_was_made(bigsvm: Bigsvm, store: Path) -> None:
    Path("a.svm").write_text("1 1:1\n-1 1:-1\n")
    makers = [
        ["ingest", "a.svm", "a.zarr"], ["seal", "a.zarr"], ["fit", "a.zarr"], ["fit", "a.zarr", "--resume"],
        ["resume", "a.model.run"], ["predict", "a.model", "a.zarr", "-o", "p.csv"], ["dump", "a.zarr", "b.svm"],
        ["promote", "reg", "a.model"], ["rollback", "reg", "--to", "1"],
    ]  # fmt: skip
    for args in makers:
        said = bigsvm(*args, "--quiet")
        assert said == (0, "", ""), args
    for args in (["evaluate", "a.model", "a.zarr"], ["certify", "a.model", "a.zarr"], ["inspect", "a.zarr"],
                 ["plan", "a.zarr"], ["history", "reg"], ["predict", "a.model", "a.zarr"], ["dump", "a.zarr", "-"],
                 ["fit", "a.zarr", "--resume", "--json"]):  # fmt: skip
        said = bigsvm(*args, "--quiet")
        assert (said.code, said.err) == (0, ""), args
        assert said.out != "", args
    # What did not come to its end is not passed over.
    stopped = bigsvm("fit", store, "--max-passes", "1", "--tol", "1e-12", "-s", "dcd", "-o", "s", "--quiet")
    assert (stopped.code, stopped.out.startswith("stopped before the tolerance")) == (4, True)


@pytest.mark.parametrize("form", ["parquet", "zarr"])
def test_predictions_say_whose_they_are_and_of_which_rows(bigsvm: Bigsvm, store: Path, model: Path, form: str) -> None:
    said = bigsvm("predict", model, store, "-o", f"p.{form}", "--json")
    assert said.code == 0
    identity = json.loads(said.out)["result"]["identity"]
    assert identity == {
        "model": model_fingerprint(model),
        "rows": open_store(store, labelled=False).identity.document(),
    }
    if form == "parquet":
        kept = json.loads(pq.read_schema("p.parquet").metadata[b"bigsvm-identity"])
    else:
        kept = json.loads(Path("p.zarr/zarr.json").read_text())["attributes"]["bigsvm-identity"]
    assert kept == identity


@pytest.mark.parametrize("place", ["a file", "a descriptor"])
@pytest.mark.parametrize("again", [False, True])
def test_a_report_that_cannot_be_written_says_that_the_model_is(
    place: str, again: bool, bigsvm: Bigsvm, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a run that is over is asked for a report."""

    def full(out: Path, content: bytes, overwrite: bool) -> None:
        raise OutputError("cannot write: No space left on device", str(out))

    if again:
        assert bigsvm("fit", store, "-o", "a model", "--quiet").code == 0
    with open("/dev/full", "wb") as device, monkeypatch.context() as patched:
        out = "page.html" if place == "a file" else f"/dev/fd/{device.fileno()}"
        if place == "a file":
            patched.setattr("bigsvm.cli.page.write_page", full)
        said = bigsvm("fit", store, "-o", "a model", "--report", out, "--json", "--quiet", *["--resume"] * again)
    error = said.document["error"]
    assert (said.code, error["where"]) == (73, out)
    assert "No space left on device" in error["message"]
    assert "its model is written: a model" in error["message"]
    later = f"bigsvm report 'a model.run' -o {out}"
    assert later in error["hint"]
    assert bigsvm("certify", "a model", store, "--quiet").code == 0
    assert bigsvm("report", "a model.run", "-o", "later.html", "--quiet").code == 0
    assert (tmp_path / "later.html").stat().st_size > 0


WRITTEN = {
    "report": ["report", "MODEL", "-o", "page.html"],
    "promote": ["promote", "registry", "MODEL"],
    **{f"predict {kind}": ["predict", "MODEL", "STORE", "-o", f"p.{kind}"] for kind in ("jsonl", "csv", "parquet")},
    "predict text": ["predict", "MODEL", "rows.svm", "-o", "p.jsonl"],
    "predict zarr": ["predict", "MODEL", "STORE", "-o", "p.zarr"],
    **{f"export {kind}": ["export", "MODEL", f"m.{kind}"] for kind in ("npz", "onnx")},
    "export liblinear": ["export", "MODEL", "m.txt", "--format", "liblinear"],
    **{f"dump {kind}": ["dump", "STORE", f"d.{kind}"] for kind in ("svm", "jsonl", "parquet")},
    "dump csv": ["dump", "narrow.csv", "d.csv"],
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_a_full_disk_is_told_with_the_bytes_that_are_needed(
    bigsvm: Bigsvm, model: Path, store: Path, kind: str, tmp_path: Path
) -> None:
    if kind == "export onnx":
        pytest.importorskip("onnx")
    bigsvm("dump", store, "rows.svm")
    Path("narrow.csv").write_text("label,a\n" + "".join(f"{k % 2},{k}.5\n" for k in range(200)))
    before = {path for path in tmp_path.rglob("*") if path.name != "registry"}
    names = {"MODEL": str(model), "STORE": str(store)}
    with files_of_at_most(300):
        said = bigsvm(*(names.get(part, part) for part in WRITTEN[kind]))
    assert said.code == 73
    (needed,) = re.findall(r"([0-9]+) bytes needed", said.err)
    if kind == "promote":
        return
    assert set(tmp_path.rglob("*")) == before, "nothing half-written is left"
    assert bigsvm(*(names.get(part, part) for part in WRITTEN[kind])).code == 0
    if "zarr" in kind:  # the message is of one chunk
        return
    size = Path(WRITTEN[kind][-1] if kind != "export liblinear" else "m.txt").stat().st_size
    if kind.split()[0] in ("export", "report"):
        assert int(needed) == size
    elif "more than" in said.err:
        assert int(needed) < size
    else:
        assert "about" in said.err
        assert int(needed) == pytest.approx(size, rel=0.3)


@pytest.mark.parametrize(("done", "said"), [(0, "more than 60"), (20, "about 300"), (100, "more than 60")])
def test_the_size_of_an_output_is_estimated_by_its_rows(done: int, said: str) -> None:
    assert Share(100, done)(60) == f"{said} bytes"


def test_what_is_free_is_measured_without_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte that is free and was filled is free again: the message said that nothing is."""
    seen: list[list[Path]] = []
    statvfs = os.statvfs

    def asked(place: Path) -> os.statvfs_result:
        seen.append(list(tmp_path.iterdir()))
        return statvfs(place)

    monkeypatch.setattr(os, "statvfs", asked)

    def fill() -> None:
        with new_output(tmp_path / "out", False) as file:
            file.write(b"12345")
            file.flush()
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OutputError, match=r"more than 5 bytes needed, [0-9]+ are free"):
        fill()
    assert seen == [[]]
