"""`scripts/same_bytes.py` finds what is planted: the smoke of it, which is of one tree, would find nothing."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from same.cases import CASES, DATA, SMOKE
from same.compare import CLOCKS, compare_bytes, compare_folders, first_difference, without_clocks

from bigsvm.config import KERNELS
from bigsvm.solvers.registry import SOLVERS

SCRIPTS = Path(__file__).parents[1] / "scripts"
MODEL: dict[str, Any] = {"digest": "a", "plan": {"why": "as asked"}, "tol": 0.1, "Cs": [1, 2], "nan": float("nan")}


def as_npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"tol": 0.2}, "tol: 0.1 and 0.2"),
        ({"tol": 0.2, "digest": "b"}, "tol: 0.1 and 0.2"),  # the digest differs because of the other
        ({"digest": "b"}, 'digest: "a" and "b"'),
        ({"plan": {"why": "else"}}, 'plan.why: "as asked" and "else"'),
        ({"plan": {}}, "plan.why: only the old one has it"),
        ({"more": 1}, "more: only the new one has it"),
        ({"Cs": [1, 2.0]}, "Cs[1]: 2 and 2.0"),
        ({"Cs": [1]}, "Cs: [1, 2] and [1]"),
        ({}, ""),
    ],
)
def test_the_first_key_that_differs(changed: dict[str, Any], words: str) -> None:
    new = {**MODEL, **changed}
    assert first_difference(MODEL, new) == words
    assert compare_bytes("model.json", json.dumps(MODEL).encode(), json.dumps(new).encode()) == words


def test_bytes_that_hold_the_same_values_differ() -> None:
    assert compare_bytes("model.json", b'{"a": 1}', b'{"a":  1}') == (
        "byte 6 of 8 and 9: b'{\"a\": 1}' and b'{\"a\":  1}'"
    )
    assert compare_bytes("lines.jsonl", b"abc", b"abcd") == "byte 3 of 3 and 4: b'abc' and b'abcd'"


def test_the_first_entry_that_differs() -> None:
    old = np.zeros((2, 3))
    for value in (1.0, -0.0, np.nan, np.nextafter(0, 1)):
        new = old.copy()
        new[1, 0] = value
        assert compare_bytes("alpha.npy", as_npy(old), as_npy(new)).startswith("entry (1, 0): ")
        assert compare_bytes("alpha.npy", as_npy(new), as_npy(new)) == ""
    assert "float64 (2, 3) and float32 (2, 3)" in compare_bytes("a.npy", as_npy(old), as_npy(old.astype(np.float32)))


def test_clocks_are_not_compared_and_all_else_is() -> None:
    said = {"exit": 0, "document": {"elapsed_s": 1, "result": [{"seconds": {"plan": 1}, "gap": 1e-3}]}}
    later = {"exit": 0, "document": {"elapsed_s": 2, "result": [{"seconds": {"plan": 3}, "gap": 1e-3}]}}
    other = {"exit": 0, "document": {"elapsed_s": 1, "result": [{"seconds": {"plan": 1}, "gap": 2e-3}]}}
    texts = [json.dumps(document).encode() for document in (said, later, other)]
    assert compare_bytes("fit.said.json", texts[0], texts[1]) == ""
    assert compare_bytes("fit.said.json", texts[0], texts[2]) == "document.result[0].gap: 0.001 and 0.002"
    assert compare_bytes("run.json", texts[0], texts[1]) != ""
    assert not set(CLOCKS) & set(json.dumps(without_clocks(said)).split('"'))


def test_folders(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name / "model").mkdir(parents=True)
        (tmp_path / name / "model" / "coef.npy").write_bytes(as_npy(np.arange(3.0)))
        (tmp_path / name / "model.run").mkdir()
        (tmp_path / name / "model.run" / "events.jsonl").write_text(name)
    old, new = tmp_path / "old", tmp_path / "new"
    assert compare_folders(old, new) == []
    (new / "model" / "more.npy").write_bytes(b"")
    (old / "model" / "coef.npy").write_bytes(as_npy(np.array([0.0, 1.0, 2.5])))
    (old / "predictions.jsonl").write_text("{}")
    assert [tuple(found) for found in compare_folders(old, new)] == [
        ("model/coef.npy", "entry (2,): np.float64(2.5) and np.float64(2.0) (1 of 3 differ)"),
        ("model/more.npy", "only the new tree wrote it"),
        ("predictions.jsonl", "only the old tree wrote it"),
    ]


def test_the_cases_are_of_every_solver_loss_and_kernel() -> None:
    words = [[*case.flags.split(), *map(str, case.options.values())] for case in CASES if case.code == 0]
    together = {word for line in words for word in line}
    assert set(SOLVERS) <= together
    assert set(KERNELS) <= together
    assert {loss for solver in SOLVERS.values() for loss in solver.losses} <= together
    assert {"1", "3", "keerthi2", "wr", "wr+3", "--stage", "--weight", "--class-weight", "--stop", "--rows"} <= together
    assert any("--labels" in DATA[case.data].columns for case in CASES)
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))
    assert set(SMOKE) <= set(names)
    assert {case.data for case in CASES} == set(DATA)


def test_another_exit_code_is_found_in_another_tree(tmp_path: Path) -> None:
    """The whole way with a fault that needs no compiler: a folder whose command line ends otherwise."""
    tree, summary = tmp_path / "tree", tmp_path / "summary.json"
    shutil.copytree(SCRIPTS.parent / "bigsvm", tree / "bigsvm", ignore=shutil.ignore_patterns("__pycache__"))
    errors = tree / "bigsvm" / "errors.py"
    planted = errors.read_text().replace("code = 66", "code = 67")
    assert planted != errors.read_text()
    errors.write_text(planted)
    trees = [str(SCRIPTS.parent), str(tree)]
    command = [sys.executable, str(SCRIPTS / "same_bytes.py"), *trees, "--only", "refused-store"]
    done = subprocess.run([*command, "--json", str(summary)], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "1 cases: 0 the same, 1 different" in done.stdout
    found = json.loads(summary.read_text())["differences"]
    assert found == [
        {"case": "refused-store", "file": "", "words": "new: exit code 67, where this case is meant to end with 66"},
        {"case": "refused-store", "file": "fit.said.json", "words": found[1]["words"]},
    ]
    assert found[1]["words"].endswith("66 and 67")
