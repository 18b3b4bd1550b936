"""Runs cases of `same_bytes.py`, one a line of standard input, with the bigsvm of one tree; answers a line a case.

It sees a tree through its public surface alone (the command line, `bigsvm.fit`, `fit_path`, `certify`, `load_model`),
because everything below may lie elsewhere in the other tree.  Of this repository's scripts it imports nothing: both
trees are judged by the same worker, whichever tree it came from.

    python -P worker.py TREE      in the folder where the cases write, with PYTHONPATH = TREE
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import zarr

import bigsvm
from bigsvm.cli.main import run as command_line

MEMORY = "64MiB"
"""Of a fit whose case does not stream: the default would depend on the machine."""


def bigsvm_says(folder: Path, step: str, *command: str) -> tuple[int, dict[str, Any]]:
    """Run a command, and keep its exit code and document as STEP.said.json in the folder."""
    out, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = command_line([*command, "--json", "--quiet"])
    try:
        document = json.loads(out.getvalue())
    except ValueError:
        document = {"standard_output": out.getvalue(), "standard_error": said.getvalue()}
    keep(folder, step, code, document)
    return code, document


def keep(folder: Path, step: str, code: int, document: Any) -> None:
    """Write what a step said; the folder where a tree writes, which is another one for each, is called HERE."""
    text = json.dumps({"exit": code, "document": document}, indent=1, default=_plain)
    text = text.replace(str(Path.cwd()), "HERE")
    (folder / f"{step}.said.json").write_text(text + "\n")


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else str(value)


class NotAsMeant(Exception):
    """A case does not test what it is there for."""


def sealed(case: dict[str, Any], folder: Path) -> int:
    """Seal a store, and keep a copy of what that writes into it."""
    store = Path(case["store"])
    before = set(store.iterdir())
    code, _ = bigsvm_says(folder, "seal", "seal", str(store))
    for path in sorted(set(store.iterdir()) - before):
        shutil.copy(path, folder)
    return code


def by_command(case: dict[str, Any], folder: Path) -> int:
    """Plan where that is asked for, fit, certify and predict on the command line; the fit's exit code."""
    store, flags = case["store"], case["flags"].split()
    if store.endswith(".svm"):
        ingested = str(folder / "ingested.zarr")
        code, _ = bigsvm_says(folder, "ingest", "ingest", store, ingested, "--threads", "1")
        if code:
            return code
        store = ingested
    columns = [*case["columns"], *_values_of(flags, "--weight")]
    flags = [*case["columns"], *flags]
    if "--threads" not in flags:
        flags += ["--threads", "1"]
    if case["streamed"]:
        code, document = bigsvm_says(folder, "plan", "plan", store, *flags, "--memory", "1GiB")
        if code:
            return code
        flags += ["--memory", str(document["result"]["min_memory_bytes"])]
    elif "--memory" not in flags:
        flags += ["--memory", MEMORY]
    model = folder / "model"
    fit = ["fit", store, *flags, "--scratch", str(folder / "scratch"), "-o", str(model)]
    if case["resumed"]:
        code, _ = bigsvm_says(folder, "stopped", *fit, "--max-passes", str(case["resumed"]))
        if code != 4:
            raise NotAsMeant(f"the fit was to stop after {case['resumed']} passes, and ended with {code}")
        model.rename(folder / "stopped")
        fit += ["--resume"]
    code, _ = bigsvm_says(folder, "fit", *fit)
    if model.exists():
        if case["streamed"] and json.loads((model / "model.json").read_bytes())["plan"]["resident"]:
            raise NotAsMeant("the rows were to stream, and were kept in memory")
        beside = ["--threads", "1", "--memory", MEMORY]
        bigsvm_says(folder, "certify", "certify", str(model), store, *columns, *beside)
        bigsvm_says(folder, "evaluate", "evaluate", str(model), store, *columns, *beside)
        predictions = str(folder / "predictions.jsonl")
        bigsvm_says(folder, "predict", "predict", str(model), store, *columns, *beside, "-o", predictions)
    return code


def _values_of(flags: list[str], wanted: str) -> list[str]:
    """A flag with its value, where it is among `flags`."""
    return flags[flags.index(wanted) :][:2] if wanted in flags else []


def by_call(case: dict[str, Any], folder: Path) -> int:
    """Fit arrays by the Python function, save, certify and predict; the exit code that the command line would have."""
    X, y = read_arrays(Path(case["store"]))
    options = {"threads": 1, "memory": MEMORY, "scratch": str(folder / "scratch"), **case["options"]}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if case["door"] == "fit_path":
                results = bigsvm.fit_path((X, y), options.pop("Cs"), **options)
            else:
                results = [bigsvm.fit((X, y), **options)]
    except bigsvm.BigSVMError as error:
        keep(folder, "fit", error.code, {"error": type(error).__name__, "message": str(error)})
        return int(error.code)
    for number, result in enumerate(results):
        model = folder / f"model-{number}"
        result.save_model(model)
        keep(folder, f"fit-{number}", result.exit_code(), {"status": result.status, "result": result.document()})
        proof = bigsvm.certify(model, (X, y), threads=1, memory=MEMORY)
        keep(folder, f"certify-{number}", 0, {"result": proof})
        loaded = bigsvm.load_model(model)
        np.save(folder / f"scores-{number}.npy", loaded.decision_function(X))
        np.save(folder / f"labels-{number}.npy", loaded.predict(X))
    codes = [int(result.exit_code()) for result in results]
    for result in results:
        result.close()
    return max(codes)


def read_arrays(store: Path) -> tuple[Any, np.ndarray]:
    """The rows and labels of one of the tool's stores, as NumPy or SciPy has them."""
    group: Any = zarr.open_group(store, mode="r")
    y = group["obs/label"][:]
    if isinstance(group["X"], zarr.Array):
        return group["X"][:], y
    parts = tuple(group[f"X/{name}"][:] for name in ("data", "indices", "indptr"))
    return sp.csr_matrix(parts, shape=tuple(group["X"].attrs["shape"])), y


DOORS = {"seal": sealed, "command": by_command, "fit": by_call, "fit_path": by_call}


def main() -> None:
    """Cases until standard input ends."""
    tree = Path(sys.argv[1]).resolve()
    found = Path(bigsvm.__file__).resolve()
    if tree not in found.parents:
        raise SystemExit(f"bigsvm was imported from {found}, which is not in {tree}")
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # nothing that is printed by accident can be taken for an answer
    for line in sys.stdin:
        case = json.loads(line)
        folder = Path(case["name"])
        folder.mkdir()
        try:
            answer = {"exit": DOORS[case["door"]](case, folder)}
        except NotAsMeant as error:
            answer = {"not_as_meant": str(error)}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
