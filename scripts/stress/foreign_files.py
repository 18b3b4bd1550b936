#!/usr/bin/env python3
"""Files as other libraries write them: each is read to the rows that were written, or refused in one line.

pandas, polars, Spark (local mode), anndata, annbatch, h5py and dask write in environments of their own, since anndata
wants another pandas than we do, and annbatch another Python; here the files are only read.  Files of strangers that lie
in the data folder are read or refused as well.

    scripts/stress/foreign_files.py --environments DIR      makes the environments there, where they are not there yet
    scripts/stress/foreign_files.py --smoke                 what can be written by libraries that are here
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from foreign.common import rows

from bigsvm.compiled.shared.rows import CSR
from bigsvm.errors import BigSVMError
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest.ingest import ingest

WRITERS = {
    "pandas": ["pandas", "pyarrow"],
    "polars": ["polars", "numpy"],
    "dask": ["dask[dataframe]", "zarr"],
    "h5py": ["h5py"],
    "anndata": ["anndata"],
    "annbatch": ["annbatch"],
    "spark": ["pyspark", "numpy", "pandas", "pyarrow"],
}
"""Writer -> what its environment holds."""
PYTHONS = {"annbatch": ("python3.12", "python3.13")}
"""Writer -> the Pythons that it runs in, where it does not run in any that we do."""
X, y = rows()
LABELS = {"numbers": y.tolist(), "text": np.array(["no", "yes"])[y].tolist(), "bool": y.astype(bool).tolist()}
_STRANGERS = (
    Path(os.environ.get("BIGSVM_TEST_DATA", Path(__file__).resolve().parents[3] / "shared" / "data")) / "foreign"
)


def interpreter(name: str, environments: Path | None) -> str:
    """The Python that a writer runs in; made where it is not there.  Raises CalledProcessError."""
    if environments is None:
        return sys.executable
    folder = environments / name
    python = folder / "bin" / "python"
    if not (folder / "whole").exists():
        subprocess.run([pythons(name)[0], "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *WRITERS[name]], check=True)
        (folder / "whole").touch()
    return str(python)


def pythons(name: str) -> list[str]:
    """Those here that a writer's environment can be made of."""
    asked = PYTHONS.get(name, (sys.executable,))
    if Path(sys.executable).resolve().name in asked:
        return [sys.executable]
    return [path for one in asked if (path := shutil.which(one)) is not None and works(path)]


def works(python: str) -> bool:
    """Whether a Python starts: a name on the path may stand for one that was not installed."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def written(name: str, python: str, folder: Path) -> list[dict[str, Any]]:
    """What a writer has written into the folder.  Raises SystemExit where it fails."""
    script = Path(__file__).parent / "foreign" / f"by_{name}.py"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment["PYSPARK_PYTHON"] = python  # its workers would take the first on the path
    done = subprocess.run(
        [python, str(script), str(folder)], capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        raise SystemExit(f"{name} could not write: {done.stderr.strip().splitlines()[-1:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def found(path: str, options: dict[str, Any], zeros: bool, work: Path) -> tuple[np.ndarray, list[Any]]:
    """(dense X, labels) of a file."""
    if options.pop("ingest", False):
        parts = sorted(map(str, Path(path).parent.glob(Path(path).name)))
        ingest(parts, work / "ingested.zarr", dtype="float64", n_features=X.shape[1], overwrite=True)
        path = str(work / "ingested.zarr")
    if options.pop("append", False):
        options |= {"empty_chunks": "zeros"}
        for number, part in enumerate(sorted(map(str, Path(path).parent.glob(Path(path).name)))):
            how = {"append": True} if number else {"overwrite": True}
            ingest(part, work / "grown.zarr", **how, **options)
        path, options = str(work / "grown.zarr"), {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = open_store(path, **({"empty_chunks": "zeros"} if zeros and path.endswith(".zarr") else {}), **options)
        block = store.read(store.refs(store.n_samples)[0])
    dense = np.zeros((store.n_samples, X.shape[1]))
    if isinstance(block.X, CSR):
        row = np.repeat(np.arange(store.n_samples), np.diff(block.X.indptr))
        dense[row, block.X.indices] = block.X.data
    else:
        dense[:] = block.X
    labels = block.y if store.classes is None else store.classes[block.y.astype(int)]
    return dense, labels.tolist()


def trial(name: str, folder: Path, case: dict[str, Any], work: Path) -> str | None:
    """What is wrong with how a file is taken; None where nothing is."""
    what = f"{name}: {case['name']} {case['options'] or ''}".rstrip()
    try:
        dense, labels = found(str(folder / case["name"]), dict(case["options"]), case["zeros"], work)
    except BigSVMError as error:
        said = str(error)
        sys.stdout.write(f"{what}: {said.replace(str(folder) + '/', '')}\n")
        if case["read"]:
            return f"{what} was refused: {said}"
        return f"{what}: not one line: {said!r}" if "\n" in said else None
    except Exception as error:  # whatever a reader lets out
        return f"{what}: {type(error).__name__}: {error}"
    if not case["read"]:
        return f"{what} was read, and should have been refused"
    # Spark mixes the order of rows where it parts them.
    order, wanted = np.lexsort(dense.T), np.lexsort(X.T)
    if not np.array_equal(dense[order], X[wanted]):
        return f"{what}: other rows"
    if [labels[i] for i in order] != [LABELS[case["labels"]][i] for i in wanted]:
        return f"{what}: other labels: {sorted(set(labels))}"
    return None


def strangers(work: Path) -> list[str]:
    """Files of the data folder: Parquet of pyarrow and of parquet-mr, AnnData of 0.7.8."""
    if not _STRANGERS.is_dir():
        sys.stdout.write(f"there is no {_STRANGERS.name} folder beside the data sets: left out\n")
        return []
    with zipfile.ZipFile(_STRANGERS / "anndata_v0.7.8.zarr.zip") as archive:
        archive.extractall(work / "cells.zarr")
    root = next(path.parent for path in (work / "cells.zarr").rglob(".zgroup"))
    wrong = []
    for path, options, shape in (
        (_STRANGERS / "iris.parquet", {}, None),
        (_STRANGERS / "iris.parquet", {"label": "class"}, (150, 4)),
        (_STRANGERS / "alltypes_tiny_pages_plain.parquet", {"label": "int_col"}, None),
        (root, {"label": "obs/obs_cat", "empty_chunks": "zeros"}, (30, 20)),
    ):
        try:
            store = open_store(str(path), **options)
            got = (store.n_samples, store.n_features)
            sys.stdout.write(f"{path.name} {options}: {got[0]} x {got[1]}\n")
            if shape is not None and got != shape:
                wrong.append(f"{path.name} is {got}, not {shape}")
        except BigSVMError as error:
            sys.stdout.write(f"{path.name} {options}: {error}\n")
            wrong += [] if shape is None and "\n" not in str(error) else [f"{path.name} was refused: {error}"]
    return wrong


def main() -> int:
    """Write and read; 1 where something is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=Path, help="folder of environments; without it what is here writes")
    parser.add_argument("--only", default="", help=f"writers with commas between [{','.join(WRITERS)}]")
    parser.add_argument("--smoke", action="store_true", help="pandas and h5py alone, in this environment")
    options = parser.parse_args()
    names = [name for name in options.only.split(",") if name] or list(WRITERS)
    if options.smoke:
        names, options.environments = ["pandas", "h5py"], None
    wrong, n = [], 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("BIGSVM_CACHE", str(Path(folder) / "cache"))
        for name in names:
            module = WRITERS[name][0].partition("[")[0]
            if options.environments is None and importlib.util.find_spec(module) is None:
                sys.stdout.write(f"{name}: {module} is not here: left out\n")
                continue
            if options.environments is not None and not pythons(name):
                sys.stdout.write(f"{name}: there is none of {', '.join(PYTHONS[name])}: left out\n")
                continue
            if name == "spark" and shutil.which("java") is None:
                sys.stdout.write("spark: there is no Java: left out\n")
                continue
            where = Path(folder) / name
            where.mkdir()
            cases = written(name, interpreter(name, options.environments), where)
            n += len(cases)
            wrong += [said for case in cases if (said := trial(name, where, case, Path(folder)))]
        wrong += strangers(Path(folder))
    for said in wrong:
        sys.stdout.write(f"WRONG: {said}\n")
    sys.stdout.write(f"{n} files by {', '.join(names)}: {len(wrong)} wrong\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
