"""Commands that train, end to end on a small store: fit, plan and demo."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from bigsvm.model.linear_model import load_model
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


def test_fit_of_text_says_to_ingest_first(bigsvm: Bigsvm) -> None:
    Path("a.svm").write_text("1 1:1\n-1 2:1\n")
    said = bigsvm("fit", "a.svm")
    assert said.code == 2
    assert "bigsvm ingest" in said.err


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
    said = bigsvm("fit", "two.zarr", "-s", "dcd", "-o", "m")
    assert said.code == 4
    assert said.out.startswith("stalled before the tolerance")
    assert "\nhint: scale the features to about [-1, 1]" in said.out
    long = bigsvm(
        "fit", "two.zarr", "-s", "dcd", "--set", "max_sweeps_per_step=1", "--max-passes", "3000", "-o", "o", "--json"
    )
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
    assert enough.document["warnings"] == []  # here --workers has an effect
    assert "too little for a worker" in refused.document["error"]["message"]
    assert bigsvm("plan", store, "--memory-per-worker", "1GiB").code == 2
    assert "limit" in bigsvm(*asked[:-1], "--workers", 20).out
    assert (
        bigsvm("plan", store, "--workers", 4, "--json").document["result"]["cluster"]["limit"] == "the calling process"
    )


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
