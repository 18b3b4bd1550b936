"""Each command end to end on a small store: its JSON, its text, its exit codes."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigsvm.cli.commands.machine.cache import COMPILED, USES
from bigsvm.cli.remedies import remedies
from bigsvm.compiled.cache.functions import SUFFIX
from bigsvm.compiled.cache.places import LEVELS, lacks, shipped
from bigsvm.compiled.cache.stamp import stamp
from bigsvm.files import paths
from bigsvm.model.linear_model import load_model
from bigsvm.run import warm
from tests.cli.conftest import Bigsvm

FIT_KEYS = {
    "model", "run", "solver", "loss", "bias", "kernel", "C", "seed", "n_samples", "n_features", "nnz",
    "classes", "store_fingerprint", "content_fingerprint", "objective", "dual_objective", "duality_gap",
    "relative_gap", "certificate", "passes", "epochs", "certificate_passes", "bytes_read", "data_bytes",
    "scratch_bytes", "n_support", "seconds", "memory", "kernel_rows", "models",
}  # fmt: skip


def test_fit_document_is_the_contracts(bigsvm: Bigsvm, store: Path) -> None:
    said = bigsvm("fit", store, "--json", "--loss", "hinge", "--memory", "24MiB")
    assert said.code == 0
    document = said.document
    assert set(document) == {"schema_version", "command", "status", "elapsed_s", "warnings", "result"}
    assert (document["command"], document["status"]) == ("fit", "converged")
    result = document["result"]
    assert set(result) >= FIT_KEYS
    assert result["relative_gap"] <= 1e-3
    assert (result["model"], result["run"]) == ("small.model", "small.model.run")
    assert load_model("small.model").n_features == result["n_features"]
    record = json.loads(Path("small.model.run/run.json").read_text())
    assert record["status"] == "converged"
    assert record["result"]["objective"] == result["objective"]


def test_fit_says_something_worth_reading(bigsvm: Bigsvm, store: Path) -> None:
    said = bigsvm("fit", store, "-o", "m")
    assert said.code == 0
    for word in ("converged", "objective", "proved", "passes", "memory", "m.run"):
        assert word in said.out
    assert "relative gap" in said.err
    assert bigsvm("fit", store, "-o", "m", "--overwrite", "--quiet").err == ""


def test_fit_refuses_an_existing_output_before_any_work(bigsvm: Bigsvm, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    said = bigsvm("fit", "there-is-no.zarr", "-o", "m", "--json")  # the store is not even looked at
    assert said.code == 73
    assert said.document["error"]["where"] == "m"
    assert bigsvm("fit", "there-is-no.zarr", "-o", "missing/deep/m").code == 66
    Path("file").write_text("")
    assert bigsvm("fit", "there-is-no.zarr", "-o", "file/m").code == 73


def test_fit_that_stops_early(bigsvm: Bigsvm, store: Path) -> None:
    stop = ["fit", store, "-e", "1e-12", "--max-passes", "2", "-o", "m"]
    said = bigsvm(*stop, "--json")
    assert (said.code, said.document["status"]) == (4, "stopped")
    assert Path("m/model.json").exists()
    assert bigsvm(*stop, "--overwrite", "--allow-unconverged", "--json").code == 0


def test_fit_tells_events_as_json(bigsvm: Bigsvm, store: Path) -> None:
    said = bigsvm("fit", store, "--json", "--log-format", "json")
    events = [json.loads(line) for line in said.err.splitlines()]
    assert events[0]["event"] == "FitStarted"
    assert events[-1]["event"] == "FitEnded"
    assert said.document["status"] == "converged"


def test_a_refused_fit_leaves_nothing(bigsvm: Bigsvm, store: Path, tmp_path: Path) -> None:
    said = bigsvm("fit", store, "--memory", "1MiB", "--json")
    assert said.code == 78
    least = said.document["error"]["min_memory_bytes"]
    assert [path.name for path in tmp_path.iterdir() if path.name != "scratch"] == []
    assert bigsvm("plan", store, "--memory", f"{least}b").code == 0
    assert bigsvm("fit", store, "--memory", f"{least}b", "--json").code == 0


def test_plan(bigsvm: Bigsvm, store: Path) -> None:
    said = bigsvm("plan", store, "--json")
    assert said.code == 0
    assert said.document["result"]["min_memory_bytes"] > 0
    assert "memory" in bigsvm("plan", store).out


def test_plan_of_a_cluster_says_what_limits_it(bigsvm: Bigsvm, store: Path) -> None:
    asked = ("plan", store, "--solver", "dcd", "--shards", "8", "--memory", "64MiB", "--json")
    found = {k: bigsvm(*asked, "--workers", k).document["result"]["cluster"] for k in (1, 2, 8, 20)}
    assert [found[k]["shards_per_worker"] for k in found] == [8, 4, 1, 1]
    assert [found[k]["used"] for k in found] == [1, 2, 8, 8]
    assert found[1]["read_s"] == 2 * found[2]["read_s"] == 8 * found[8]["read_s"]
    assert found[8]["sums_s"] > found[2]["sums_s"] > found[1]["sums_s"] > found[1]["read_s"]  # few rows: sums are all
    parts = ("read_s", "sums_s", "saves_s")
    assert all(one["pass_s"] == pytest.approx(sum(one[part] for part in parts)) for one in found.values())
    assert found[8]["limit"] == "sums"
    least = found[8]["worker_bytes"]
    enough = bigsvm(*asked, "--workers", 8, "--memory-per-worker", f"{least}b")
    refused = bigsvm(*asked, "--workers", 8, "--memory-per-worker", f"{least - 1}b")
    assert (enough.code, refused.code) == (0, 78)
    assert "too little for a worker" in refused.document["error"]["message"]
    assert bigsvm("plan", store, "--memory-per-worker", "1GiB").code == 2
    assert "limit" in bigsvm(*asked[:-1], "--workers", 20).out
    assert (
        bigsvm("plan", store, "--workers", 4, "--json").document["result"]["cluster"]["limit"] == "the calling process"
    )


def test_ingest_dump_and_back(bigsvm: Bigsvm, store: Path) -> None:
    assert bigsvm("dump", store, "a.svm").code == 0
    said = bigsvm("ingest", "a.svm", "a.zarr", "--n-features", 20000, "--json")
    assert said.code == 0, said.err
    assert said.document["result"]["n_samples"] == 1500
    ours = bigsvm("inspect", store, "--json").document["result"]
    back = bigsvm("inspect", "a.zarr", "--json").document["result"]
    assert back["content_fingerprint"] == ours["content_fingerprint"]
    assert bigsvm("ingest", "a.svm", "a.zarr").code == 73
    assert bigsvm("dump", store, "a.svm").code == 73
    assert bigsvm("dump", store, "a.svm", "--overwrite").code == 0
    assert bigsvm("dump", store, "-", "--json").code == 2
    text = bigsvm("dump", store, "-", "--quiet").out
    assert text == Path("a.svm").read_text()


def test_ingest_names_the_bad_line(bigsvm: Bigsvm) -> None:
    Path("bad.svm").write_text("1 1:1\n-1 2:x\n")
    said = bigsvm("ingest", "bad.svm", "a.zarr", "--json")
    assert said.code == 65
    assert said.document["error"]["where"].endswith("bad.svm:2")
    assert not Path("a.zarr").exists()
    assert bigsvm("ingest", "none.svm", "a.zarr").code == 66


def test_fit_of_text_says_to_ingest_first(bigsvm: Bigsvm) -> None:
    Path("a.svm").write_text("1 1:1\n-1 2:1\n")
    said = bigsvm("fit", "a.svm")
    assert said.code == 2
    assert "bigsvm ingest" in said.err


def test_predict_to_standard_output(bigsvm: Bigsvm, store: Path, model: Path) -> None:
    said = bigsvm("predict", model, store)
    assert said.code == 0
    rows = [json.loads(line) for line in said.out.splitlines()]
    assert [row["row"] for row in rows] == list(range(1500))
    assert {row["label"] for row in rows} <= {-1, 1}
    assert bigsvm("predict", model, store, "--json").code == 2
    assert bigsvm("predict", model, store, "--format", "parquet").code == 2


def test_predict_to_files(bigsvm: Bigsvm, store: Path, model: Path) -> None:
    for name in ("o.jsonl", "o.csv", "o.parquet", "o.zarr"):
        said = bigsvm("predict", model, store, "-o", name, "--json")
        assert said.code == 0
        assert said.document["result"]["n_samples"] == 1500
        assert sum(said.document["result"]["label_counts"].values()) == 1500
    assert bigsvm("predict", model, store, "-o", "o.csv").code == 73
    assert "rows" in bigsvm("predict", model, store, "-o", "o.csv", "--overwrite", "--scores").out
    assert Path("o.csv").read_text().count(",") == 1500


def test_predict_reads_standard_input(bigsvm: Bigsvm, store: Path, model: Path) -> None:
    assert bigsvm("dump", store, "a.svm").code == 0
    expected = bigsvm("predict", model, "a.svm", "--format", "csv").out
    program = [sys.executable, "-c", "from bigsvm.cli.main import main; main()"]
    with open("a.svm", "rb") as text:
        done = subprocess.run(
            [*program, "predict", str(model), "-", "--format", "csv", "--quiet"],
            stdin=text, capture_output=True, text=True, check=True,
        )  # fmt: skip
    assert done.stdout == expected


def test_predict_of_what_is_not_there(bigsvm: Bigsvm, store: Path, model: Path) -> None:
    assert bigsvm("predict", "none.model", store).code == 66
    assert bigsvm("predict", model, "none.svm").code == 66


def test_evaluate(bigsvm: Bigsvm, store: Path, model: Path) -> None:
    said = bigsvm("evaluate", model, store, "--json", "--memory", "32MiB")
    assert said.code == 0
    result = said.document["result"]
    assert 0.9 < result["accuracy"] <= 1.0
    assert 0.9 < result["roc_auc"] <= 1.0
    assert sum(map(sum, result["confusion_matrix"])) == 1500
    assert "confusion matrix" in bigsvm("evaluate", model, store).out


def test_certify(bigsvm: Bigsvm, store: Path, model: Path) -> None:
    said = bigsvm("certify", model, store, "--json")
    assert said.code == 0
    result = said.document["result"]
    assert result["certificate"] == "proved"
    assert 0 <= result["relative_gap"] <= 1e-3
    assert "relative gap" in bigsvm("certify", model, store).out


@pytest.mark.parametrize(("mark", "shows"), [("history.jsonl", "history"), ("search.json", "plot")])
def test_what_another_command_shows_is_named(bigsvm: Bigsvm, tmp_path: Path, mark: str, shows: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / mark).touch()
    assert f"show it with bigsvm {shows} folder" in bigsvm("inspect", "folder").err
    assert "bigsvm plot shows a search" in bigsvm("watch", "folder", "--once").err
    assert "bigsvm plot shows a search" in bigsvm("report", "folder", "--text").err


def test_inspect_a_store_a_model_and_a_run(bigsvm: Bigsvm, store: Path, model: Path) -> None:
    kinds = {"store": store, "model": model, "run": model.with_name("small.model.run")}
    for kind, path in kinds.items():
        said = bigsvm("inspect", path, "--json")
        assert said.code == 0
        assert said.document["result"]["kind"] == kind
        assert f"a {kind}" in bigsvm("inspect", path).out
    result = bigsvm("inspect", store, "--json").document["result"]
    assert result["n_samples"] == 1500
    assert sum(result["class_counts"].values()) == 1500
    assert bigsvm("inspect", "none").code == 66


def test_verify_and_seal(bigsvm: Bigsvm, store: Path) -> None:
    shutil.copytree(store, "s.zarr")
    said = bigsvm("verify", "s.zarr", "--json")
    assert said.code == 0
    assert said.document["result"]["n_bad"] == 0
    chunk = next(path for path in Path("s.zarr/X/data/c").iterdir() if path.is_file())
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1
    chunk.write_bytes(content)
    said = bigsvm("verify", "s.zarr", "--json")
    assert said.code == 65
    assert "X/data/c/" in said.document["error"]["message"]
    chunk.write_bytes(bytes(np.bitwise_xor(np.frombuffer(content, np.uint8), 0)))
    said = bigsvm("seal", "s.zarr", "--json")
    assert said.code == 0
    key = str(chunk.relative_to("s.zarr"))
    assert [key in warning for warning in said.document["warnings"]] == [True]
    assert bigsvm("verify", "s.zarr").code == 0
    assert bigsvm("seal", "s.zarr", "--json").document["warnings"] == []
    assert bigsvm("verify", "none.zarr").code == 66
    Path("rows.svm").write_text("1 1:1\n")
    Path("folder").mkdir()
    for command in ("seal", "verify"):
        said = bigsvm(command, "rows.svm", "--json")
        assert (said.code, "bigsvm ingest" in said.document["error"]["hint"]) == (66, True)
        said = bigsvm(command, "folder", "--json")
        assert (said.code, said.document["error"]["message"]) == (66, "no Zarr store here")
    Path("s.zarr/bigsvm-manifest.json").unlink()
    assert bigsvm("verify", "s.zarr").code == 66


def test_doctor(bigsvm: Bigsvm) -> None:
    said = bigsvm("doctor", "--json")
    assert said.code == 0
    result = said.document["result"]
    assert result["cores"] >= 1
    assert result["memory"]["base_bytes"] > 0
    assert result["memory"]["default_budget_bytes"] < result["memory"]["limit_bytes"]
    assert "numpy" in result["versions"]
    assert result["missing"] == []
    assert "memory limit" in bigsvm("doctor").out


@pytest.mark.parametrize("base", [100 << 20, 300 << 20])
def test_doctor_prints_the_hints_of_its_json(bigsvm: Bigsvm, monkeypatch: pytest.MonkeyPatch, base: int) -> None:
    """The base is given: this process runs tests, and what it holds differs from one call to the next."""
    monkeypatch.setattr("bigsvm.cli.commands.machine.doctor._measured_base", lambda: base)
    hints = bigsvm("doctor", "--fix-hints", "--json").document["result"]["fix_hints"]
    assert all(set(hint) == {"problem", "fix"} for hint in hints)
    assert ("give --memory 44 MiB less" in [hint["fix"] for hint in hints]) == (base > 256 << 20)
    said = bigsvm("doctor", "--fix-hints").out + "\n"
    for hint in hints:
        assert f"{hint['problem']}\n    {hint['fix']}\n" in said


def test_each_thing_that_stands_in_the_way_has_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIGSVM_CACHE", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "onnx" else name)
    memory = {
        "limit_bytes": 4 << 30,
        "limit_source": "cgroup",
        "base_bytes": 200 << 20,
        "default_budget_bytes": 1 << 30,
    }
    scratch = {"folder": str(tmp_path / "s"), "free_bytes": 9 << 30, "filesystem": "ext4"}
    well: dict[str, Any] = {"memory": memory, "scratch": scratch, "missing": []}
    optional = "optional, for bigsvm export MODEL OUT.onnx: onnx is not installed"
    assert [hint["problem"] for hint in remedies(well)] == [optional]
    for changed, problem, fix in (
        ({"missing": ["numba", "zarr"]}, "libraries are missing", "pip install numba zarr"),
        ({"memory": {**memory, "base_bytes": None}}, "ulimit -v", "ulimit -v unlimited"),
        ({"memory": {**memory, "base_bytes": 300 << 20}}, "more than 256 MiB", "give --memory 44 MiB less"),
        ({"memory": {**memory, "default_budget_bytes": 64 << 20}}, "cgroup leaves a fit 64 MiB", "raise that limit"),
        ({"scratch": {**scratch, "filesystem": "tmpfs"}}, "is in memory (tmpfs)", "export BIGSVM_SCRATCH="),
        ({"scratch": {**scratch, "free_bytes": 5}}, "less than 1 GiB", "bigsvm cache clear"),
    ):
        first, *rest = remedies({**well, **changed})
        assert problem in first["problem"]
        assert first["fix"].startswith(fix)
        assert [hint["problem"] for hint in rest] == [optional]
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    unwritable = [hint["problem"] for hint in remedies(well)]
    assert len(unwritable) == 3
    assert "cannot be written" in unwritable[0]
    assert "nothing can be kept" in unwritable[1]


def test_a_cache_in_the_temporary_folder_has_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.delenv("BIGSVM_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    memory = {"limit_source": "cgroup", "base_bytes": 1, "default_budget_bytes": 1 << 30}
    scratch = {"folder": str(tmp_path / "s"), "free_bytes": 9 << 30, "filesystem": "ext4"}
    first, *_ = remedies({"memory": memory, "scratch": scratch, "missing": []})
    assert "may empty" in first["problem"]
    assert first["fix"].startswith("export BIGSVM_CACHE=")
    own = tmp_path / f"bigsvm-{os.getuid()}"
    own.rmdir()
    own.touch()
    paths._writable_cache.cache_clear()
    first, *_ = remedies({"memory": memory, "scratch": scratch, "missing": []})
    assert "cannot be the cache folder" in first["problem"]
    assert first["fix"].startswith("export BIGSVM_CACHE=")


def test_cache(bigsvm: Bigsvm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BIGSVM_CACHE", str(tmp_path / "cache"))
    kernels = tmp_path / "cache" / "bigsvm" / "kernels-0123"
    staged = tmp_path / "scratch" / "bigsvm" / "rows-0123"
    for folder in (kernels, staged):
        folder.mkdir(parents=True)
        (folder / "x").write_bytes(b"12345")
    for name in ("compile.lock", f"a-0{SUFFIX}", f"a-1{SUFFIX}"):
        (kernels / name).touch()
    result = bigsvm("cache", "info", "--json").document["result"]
    assert result["kernels"] == {"n": 2, "versions": 1, "bytes": 5}
    assert result["staged"] == {"n": 1, "bytes": 5}
    assert bigsvm("cache", "--json").document["result"] == result
    assert "2 functions of 1 installation, 5 B in" in bigsvm("cache").out
    assert bigsvm("cache", "clear").code == 0
    assert not kernels.exists()
    assert not staged.exists()


def test_cache_tells_what_came_with_the_installation(
    bigsvm: Bigsvm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BIGSVM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("bigsvm.__file__", str(tmp_path / "__init__.py"))
    assert bigsvm("cache", "--json").document["result"]["shipped"] == {"n": 0, "processors": [], "why_not": None}
    assert "this installation was built without" in bigsvm("cache").out
    folder = tmp_path / "_compiled_cache"
    folder.mkdir()
    (folder / f"a-0{SUFFIX}").touch()
    said = bigsvm("cache").out
    assert "1 compiled function, not usable: about.json cannot be read" in said
    stamped = {"stamp": stamp(), "levels": [level for level in LEVELS if not lacks(level)]}
    (folder / "about.json").write_text(json.dumps(stamped))
    shipped.cache_clear()
    said = bigsvm("cache").out
    assert (" and ".join(stamped["levels"]) or "not usable") in said
    shipped.cache_clear()


def test_cache_warm(bigsvm: Bigsvm, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for each case; what was compiled once is not compiled again."""
    some = tuple(case for case in warm.CASES if case.uses == ("fit",) and case.layout == "dense")
    assert len(some) == 1
    monkeypatch.setattr(warm, "CASES", some)
    said = bigsvm("cache", "warm", "--for", "fit")
    assert said.code == 0
    assert f"1 of 1: {some[0].name}: done in" in said.err
    assert "kept in" in said.out
    result = bigsvm("cache", "warm", "--for", "fit", "--for", "demo", "--json").document["result"]
    assert (result["cases"], result["compiled"]) == (1, 0)
    assert bigsvm("cache", "warm", "--for", "certify", "--json").document["result"]["cases"] == 0
    assert bigsvm("cache", "warm", "--for", "nothing").code == 2
    assert (warm.USES, f"*{SUFFIX}") == (USES, COMPILED)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(bigsvm: Bigsvm, shell: str) -> None:
    said = bigsvm("completion", shell)
    assert said.code == 0
    assert "_BIGSVM_COMPLETE" in said.out


def test_demo(bigsvm: Bigsvm, tmp_path: Path) -> None:
    said = bigsvm("demo", "--rows", 4000, "--memory", "32MiB", "--quiet")
    assert said.code == 0, said.err
    for word in ("1. Data", "2. Plan", "3. Fit", "4. Proof", "5. Use", "proved within", "memory:"):
        assert word in said.out
    said = bigsvm("demo", "--rows", 4000, "--memory", "32MiB", "--json", "--dir", tmp_path / "d")
    result: dict[str, Any] = said.document["result"]
    assert (said.code, result["status"]) == (0, "converged")
    assert result["certify"]["relative_gap"] <= 1e-3
    assert (tmp_path / "d" / "demo.model").is_dir()
    assert bigsvm("demo", "--rows", 4000, "--dir", tmp_path / "d").code == 73


def test_doctor_says_the_base_whatever_is_optional(bigsvm: Bigsvm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what a fit needs is missed; and no module is named that is not there."""
    import importlib.metadata

    def version(name: str) -> str:
        if name in ("scikit-learn", "xxhash"):
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(importlib.metadata, "version", version)
    result = bigsvm("doctor", "--json").document["result"]
    assert result["memory"]["base_bytes"] > 0
    assert result["missing"] == ["xxhash"]
    assert "bigsvm.sklearn" not in bigsvm("doctor").out


_unlink = Path.unlink


def _refused(path: Path, missing_ok: bool = False) -> None:
    if path.name.startswith("segment-"):
        raise PermissionError(13, "Permission denied", str(path))
    _unlink(path, missing_ok)


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("writable", [True, False])
def test_the_hint_of_a_damaged_copy_is_the_command_that_mends_it(
    bigsvm: Bigsvm, store: Path, writable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "a folder's name"
    fit = ["fit", store, "--loss", "hinge", "--quiet", "--overwrite", "-o", "m", "--scratch", scratch]
    assert bigsvm(*fit).code == 0
    (segment,) = scratch.glob("bigsvm/rows-*/segment-00000.bin")
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    with monkeypatch.context() as patch:
        if not writable:
            patch.setattr(Path, "unlink", _refused)
        said = bigsvm(*fit, "--json")
    assert said.code == 65
    error = said.document["error"]
    assert error["where"] == str(segment)
    if writable:
        assert error["hint"].startswith("repeat the command, or --resume it, ")
        assert bigsvm(*fit, "--resume").code == 0
        return
    program, *command = shlex.split(error["hint"])
    assert (program, command) == ("bigsvm", ["cache", "clear", "--scratch", str(scratch)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BIGSVM_CACHE", str(tmp_path / "cache"))  # compiled kernels stay: they are the other tests' too
        assert bigsvm(*command).code == 0
    assert bigsvm(*fit).code == 0


def test_a_fit_that_cannot_end_says_what_may_help_and_leaves_a_short_record(bigsvm: Bigsvm, tmp_path: Path) -> None:
    Path("two.svm").write_text("".join(f"{y} 1:1000 2:1000\n" for y in (1, -1)))
    assert bigsvm("ingest", "two.svm", "two.zarr").code == 0
    said = bigsvm("fit", "two.zarr", "-o", "m")
    assert said.code == 4
    assert said.out.startswith("stalled before the tolerance")
    assert "\nhint: scale the features to about [-1, 1]" in said.out
    long = bigsvm("fit", "two.zarr", "--set", "max_sweeps_per_step=1", "--max-passes", "3000", "-o", "o", "--json")
    events = [json.loads(line) for line in Path("o.run/events.jsonl").read_text().splitlines()]
    assert len(events) < 1100
    assert len(long.err.splitlines()) < 1100
    certificates = [event for event in events if event["event"] == "CertificateMade"]
    assert certificates[-1]["epochs"] == long.document["result"]["epochs"]


def test_a_rule_is_said_with_its_value_beside_the_true_violation(bigsvm: Bigsvm, store: Path) -> None:
    how = ("--kernel", "rbf", "--stop", "paper")
    said = bigsvm("fit", store, *how, "-o", "a")
    assert said.code == 0
    assert "the solver's own stop rule is met: violation of the optimality conditions" in said.out
    assert "(tolerance 0.001)" in said.out
    how = (*how, "-s", "simplified-smo", "--set", "second=max", "-c", "100")
    said = bigsvm("fit", store, *how, "-o", "b", "--json")
    rule = said.document["result"]["rule"]
    assert rule["name"] == "the algorithm's own end"
    assert rule["value"] == said.document["result"]["violation"] > rule["tolerance"]
    assert "the algorithm's own end, at a violation of" in bigsvm("fit", store, *how, "-o", "c").out


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["fit", "STORE", "--kernel", "rbf", "--gamma", "-1"], 2),
        (["fit", "nowhere.zarr"], 66),
        (["fit", "STORE", "--label", "nobody"], 65),
        (["fit", "STORE", "--memory", "1KiB"], 78),
        (["fit", "STORE", "-o", "STORE/m"], 73),
        (["certify", "nowhere.model", "STORE"], 66),
        (["fit", "STORE", "--max-passes", "0.001", "--tol", "1e-9"], 4),
    ],
)
def test_every_line_of_a_json_log_is_json(bigsvm: Bigsvm, store: Path, args: list[str], code: int) -> None:
    """A failure's, too: who follows a log parses it."""
    said = bigsvm(*[arg.replace("STORE", str(store)) for arg in args], "--log-format", "json", "--json")
    assert said.code == code
    lines = [json.loads(line) for line in said.err.splitlines()]
    failed = [line for line in lines if line["event"] == "Failed"]
    if code == 4:
        assert failed == []
        return
    assert lines[-1:] == failed
    assert {name: failed[0][name] for name in ("code", "message", "where", "hint")} == {
        name: said.document["error"][name] for name in ("code", "message", "where", "hint")
    }
    assert failed[0]["see"].startswith("errors.md#")
