#!/usr/bin/env python3
"""What a first start costs: a wheel is built and installed into a fresh environment, where nothing is compiled yet.

Every command is a process of its own, with an empty cache and a home that cannot be written.  Printed as JSON: seconds
of the clock and of CPU of each, how many functions each compiled (none is what a wheel is for), which of the common
first fits compiled any (`bench/first_fits.py`; none), and which files of the installation were changed (none).  Takes
pip, and what it downloads.  Exit 1 where a promise is missed.

    scripts/benchmarks/cold_start.py --heart heart_scale          svmlight text of a first fit; else a small one is made
    scripts/benchmarks/cold_start.py --uses all --figures FILE    a wheel with everything that is usual
    scripts/benchmarks/cold_start.py --uses none                  beside it: one without
    scripts/benchmarks/cold_start.py --smoke                      without pip: a cache of one function, one first fit
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.first_fits import ALL, DEMO, missing_of_ten_classes, write_rows
from bench.record import write_figures

ROOT = Path(__file__).resolve().parents[2]
LIMITS = {"fit": ("cpu_s", 3.0), "demo": ("seconds", 15.0), "decision_function": ("call_s", 0.3)}
"""What is promised of a first start, of a wheel with the usual cache."""

_DECISION = """
import json, sys, time
import numpy as np
import bigsvm
model = bigsvm.load_model(sys.argv[1])
X = np.ones((3, model.n_features))
began = time.perf_counter()
model.decision_function(X)
print(json.dumps(time.perf_counter() - began))
"""
_FEATURES = "import llvmlite.binding as llvm; print(llvm.get_host_cpu_features().flatten(), end='')"
"""Of this processor: who names them gets code for it alone, and nothing of the wheel's."""
_ONE = """
import json
import numpy as np
from bigsvm.compiled.cache.functions import told_of_compiling
from bigsvm.compiled.shared.rows import sqnorms
compiled = []
with told_of_compiling(lambda: compiled.append(1)):
    sqnorms(np.ones((2, 2)), np.zeros(2))
print(json.dumps(len(compiled)))
"""
_GATHER = """
import sys
from pathlib import Path
from bigsvm.compiled.cache.shipping import gather
gather({"x86-64-v3": Path(sys.argv[1])}, Path(sys.argv[2]))
"""


class Place:
    """A fresh environment with bigsvm, and folders for what is made with it."""

    def __init__(self, work: Path) -> None:
        self.work, self.home, self.cache = work, work / "home", work / "cache"
        self.bin, self.here = work / "venv" / "bin", work / "here"
        for folder in (self.home, self.here):
            folder.mkdir()
        self.home.chmod(0o555)

    def environment(self) -> dict[str, str]:
        """Nothing of this process's own settings, and neither a home nor a cache that holds anything."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("BIGSVM_", "NUMBA_", "PYTHON"))
        }
        return {**kept, "HOME": str(self.home), "XDG_CACHE_HOME": str(self.cache), "TMPDIR": str(self.here)}

    def run(self, *command: str | Path, **more: str) -> dict[str, Any]:
        """Seconds of a command, which must succeed, and the functions that it compiled."""
        before, began, had = cpu_s(), time.perf_counter(), self.compiled()
        done = subprocess.run(
            [str(part) for part in command], cwd=self.here, env={**self.environment(), **more}, text=True,
            capture_output=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}\n{done.stdout}{done.stderr}")
        return {
            "seconds": round(time.perf_counter() - began, 2),
            "cpu_s": round(cpu_s() - before, 2),
            "compiled": self.compiled() - had,
            "said": done.stdout,
        }

    def compiled(self) -> int:
        return sum(1 for _ in self.cache.rglob("*.compiled"))


def cpu_s() -> float:
    """CPU seconds of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def digests(folder: Path) -> dict[str, str]:
    """The content of all files below a folder, but for what Python makes of its own accord."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def measured(place: Place, heart: Path, uses: str) -> dict[str, Any]:
    """Build, install, and the first of each command."""
    python, bigsvm = place.bin / "python", place.bin / "bigsvm"
    found: dict[str, Any] = {"uses": uses}
    place.run(sys.executable, "-m", "venv", place.work / "venv")
    pip = [python, "-m", "pip", "-q"]
    wheels = place.work / "wheels"
    found["build"] = place.run(*pip, "wheel", "--no-deps", "-w", wheels, ROOT, BIGSVM_BUILD_CACHE=uses)
    wheel = next(wheels.glob("*.whl"))
    found["wheel"] = {"name": wheel.name, "bytes": wheel.stat().st_size}
    found["install"] = place.run(*pip, "install", wheel)
    package = next((place.work / "venv").rglob("bigsvm/__init__.py")).parent
    before = digests(package)
    found["ingest"] = place.run(bigsvm, "ingest", heart, "heart.zarr")
    found["fit"] = place.run(bigsvm, "fit", "heart.zarr", "-o", "heart.model")
    features = place.run(python, "-c", _FEATURES)["said"]
    found["compiled_here"] = place.run(bigsvm, "fit", "heart.zarr", "-o", "here.model", NUMBA_CPU_FEATURES=features)
    found["same_bytes"] = digests(place.here / "here.model") == digests(place.here / "heart.model")
    found["certify"] = place.run(bigsvm, "certify", "heart.model", "heart.zarr")
    found["predict"] = place.run(bigsvm, "predict", "heart.model", heart, "-o", "predicted.csv")
    found["decision_function"] = place.run(python, "-c", _DECISION, "heart.model")
    found["decision_function"]["call_s"] = round(json.loads(found["decision_function"]["said"]), 4)
    found["demo"] = place.run(bigsvm, "demo")
    found["first_fits"] = first_fits(place, uses)
    found["changed_files"] = changed(before, digests(package))
    for row in found.values():
        if isinstance(row, dict):
            row.pop("said", None)
    return found


def first_fits(place: Place, uses: str) -> dict[str, dict[str, Any]]:
    """CPU seconds of the fits, and the functions compiled, of all common first fits; empty for a wheel without."""
    write_rows(place.here)
    found = {}
    for first in {"all": ALL, "none": []}.get(uses, DEMO):
        ran = [(words, place.run(place.bin / "bigsvm", *words)) for words in first.commands()]
        found[first.name] = {
            "fits_cpu_s": [row["cpu_s"] for words, row in ran if words[0] == "fit"],
            "compiled": {words[0]: row["compiled"] for words, row in ran if row["compiled"]},
        }
    return found


def text_of_heart(path: Path) -> Path:
    """Svmlight text of 270 rows and 13 features, where nobody names a better one."""
    import numpy as np

    rng = np.random.default_rng(0)
    X = rng.standard_normal((270, 13))
    labels = np.where(X[:, 0] + rng.standard_normal(270) > 0, "+1", "-1")
    rows = (" ".join(f"{j + 1}:{value:.4f}" for j, value in enumerate(row)) for row in X)
    path.write_text("".join(f"{label} {row}\n" for label, row in zip(labels, rows, strict=True)))
    return path


def smoke(place: Place) -> dict[str, Any]:
    """The mechanism without pip: one function is compiled as a build does it, and used as an installation does.

    And what a first fit calls is compared with what a build compiles.
    """
    package, kept = place.work / "package" / "bigsvm", place.work / "kept"
    shutil.copytree(ROOT / "bigsvm", package, ignore=shutil.ignore_patterns("__pycache__"))
    of_build = {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": "", "BIGSVM_CACHE": str(kept)}
    ours = {"PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    found = {"build": place.run(sys.executable, "-c", _ONE, **ours, **of_build)}
    place.run(sys.executable, "-c", _GATHER, kept, package / "_compiled_cache", **ours)
    before = digests(package)
    found["first"] = place.run(sys.executable, "-c", _ONE, **ours)
    found["changed_files"] = changed(before, digests(package))
    (place.here / "rows").mkdir()
    found["missing"] = missing_of_ten_classes(place.here / "rows")
    found["functions"] = {name: json.loads(found[name].pop("said")) for name in ("build", "first")}
    return found


def changed(before: dict[str, str], after: dict[str, str]) -> list[str]:
    return sorted(name for name in before | after if before.get(name) != after.get(name))


def missed(found: dict[str, Any]) -> list[str]:
    """What was promised and is not so."""
    said = [f"{name}: {found[name][what]} {what}, and {limit} were promised"
            for name, (what, limit) in LIMITS.items() if found[name][what] > limit]  # fmt: skip
    said += [f"{name}: {found[name]['compiled']} functions compiled" for name in LIMITS if found[name]["compiled"]]
    said += [f"first fit {name}: functions compiled: {row['compiled']}" for name, row in found["first_fits"].items()
             if row["compiled"]]  # fmt: skip
    if not (found["same_bytes"] and found["compiled_here"]["compiled"]):
        said.append("a model has other bytes where its code was compiled here, or nothing was compiled")
    return said + [f"{name} was changed" for name in found["changed_files"]]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--heart", type=Path, help="svmlight text of the first fit, such as heart_scale")
    parser.add_argument("--uses", default="demo", help="of the wheel's cache: BIGSVM_BUILD_CACHE [%(default)s]")
    parser.add_argument("--figures", type=Path, help="file of docs/figures")
    parser.add_argument("--smoke", action="store_true", help="without pip: a cache of one function, and one first fit")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="cold-start-") as folder:
        place = Place(Path(folder))
        if options.smoke:
            found = smoke(place)
            print(json.dumps(found, indent=1))
            return 1 if found["missing"] else 0
        heart = text_of_heart(place.here / "heart.svm") if options.heart is None else options.heart.resolve()
        found = measured(place, heart, options.uses)
    promised = missed(found) if options.uses != "none" else []
    print(json.dumps({**found, "missed": promised}, indent=1))
    if options.figures is not None:
        rows = [{"command": name, **row} for name, row in found.items() if isinstance(row, dict) and "cpu_s" in row]
        write_figures(options.figures, rows, uses=options.uses, wheel=found["wheel"])
    return 1 if promised else 0


if __name__ == "__main__":
    sys.exit(main())
