"""How fast, and in how much memory, `bigsvm ingest` turns svmlight text into a store.

Compared with scikit-learn's `load_svmlight_file(dtype=float32)`, which only fills memory and writes nothing.
Each run is a fresh process; the two alternate; medians are shown.  Times are of the call alone, with the
imports and, for bigsvm, with everything until the store is sealed on disk.

    python scripts/benchmarks/bench_ingest.py --size 1GB --out results/    # or --smoke
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from bench.record import write_figures

from bigsvm.units import parse_bytes, show_bytes

_OURS = """
import json, sys, time
began = time.perf_counter()
from bigsvm.store.ingest.ingest import ingest
loaded = time.perf_counter()
result = ingest(sys.argv[1], sys.argv[2], threads=int(sys.argv[3]))
print(json.dumps({"import_s": loaded - began, "seconds": time.perf_counter() - loaded,
                  "nnz": result["nnz"], "n_samples": result["n_samples"], "store_bytes": result["bytes"]}))
"""
_THEIRS = """
import json, sys, time
began = time.perf_counter()
import numpy as np
from sklearn.datasets import load_svmlight_file
loaded = time.perf_counter()
X, y = load_svmlight_file(sys.argv[1], dtype=np.float32)
print(json.dumps({"import_s": loaded - began, "seconds": time.perf_counter() - loaded,
                  "nnz": int(X.nnz), "n_samples": X.shape[0]}))
"""


def make_text(path: Path, size: int, nnz: int, n_features: int, seed: int = 0) -> int:
    """About `size` bytes of rows like those of a bag of words: `nnz` entries, values of six digits."""
    rng = np.random.default_rng(seed)
    rows = max(1, min(size, 16 << 20) // (15 * nnz))
    features = 1 + (n_features * rng.random((rows, nnz)) ** 3).astype(np.int64)
    features = np.sort(features, axis=1) + np.arange(nnz)
    values = rng.random((rows, nnz))
    template = " ".join(["%d:%.6g"] * nnz)
    lines = []
    for label, number, value in zip(rng.choice(["+1 ", "-1 "], rows), features, values, strict=True):
        numbers = [x for pair in zip(number.tolist(), value.tolist(), strict=True) for x in pair]
        lines.append(label + template % tuple(numbers))
    block = ("\n".join(lines) + "\n").encode()
    with open(path, "wb") as file:
        for _ in range(max(1, size // len(block))):
            file.write(block)
    return path.stat().st_size


def run(code: str, arguments: list[str]) -> dict[str, float]:
    """What a fresh process prints, with its peak anonymous memory in bytes, sampled."""
    began = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True)
    peak = 0
    while child.poll() is None:
        peak = max(peak, anonymous_bytes(child.pid))
        time.sleep(0.01)
    output = child.stdout.read() if child.stdout else ""
    if child.returncode:
        raise SystemExit(f"a run failed with {child.returncode}")
    return {**json.loads(output), "process_s": time.perf_counter() - began, "peak_anon_bytes": peak}


def anonymous_bytes(pid: int) -> int:
    """Anonymous resident memory of a process; 0 when it has gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("RssAnon")), 0)


def markdown(report: dict) -> str:
    """The report as a table."""
    lines = [
        f"svmlight text of {show_bytes(report['text_bytes'])}, {report['nnz']} entries, medians of "
        f"{report['repeats']} (alternating, fresh processes, {os.cpu_count()} cores)\n",
        "| | seconds | MB/s | peak anonymous memory |",
        "|---|---|---|---|",
    ]
    for name, row in report["results"].items():
        memory = show_bytes(row["peak_anon_bytes"])
        lines.append(f"| {name} | {row['seconds']:.2f} | {row['mb_per_s']:.0f} | {memory} |")
    lines.append(f"\nbigsvm is {report['ratio']:.2f} times as fast.")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", default="1GB")
    parser.add_argument("--nnz", type=int, default=80, help="entries a row")
    parser.add_argument("--features", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", type=Path, default=None, help="folder for text and stores")
    parser.add_argument("--out", type=Path, default=None, help="folder for ingest.json and ingest.md")
    parser.add_argument("--figures", type=Path, default=None, help="file of docs/figures: what README is made of")
    parser.add_argument("--smoke", action="store_true", help="a few MB, once")
    options = parser.parse_args(argv)
    size = 4 << 20 if options.smoke else parse_bytes(options.size)
    repeats = 1 if options.smoke else options.repeats
    work = Path(tempfile.mkdtemp(prefix="bench-ingest-", dir=options.work))
    try:
        text, store = work / "data.svm", work / "store.zarr"
        text_bytes = make_text(text, size, options.nnz, options.features)
        ours_arguments = [str(text), str(store), str(options.threads)]
        warm = work / "warm.svm"
        make_text(warm, 1 << 20, options.nnz, options.features)
        run(_OURS, [str(warm), str(work / "warm.zarr"), "2"])  # compiles what is not in the cache yet
        runs: dict[str, list[dict[str, float]]] = {"bigsvm ingest": [], "sklearn load_svmlight_file": []}
        for _ in range(repeats):
            runs["bigsvm ingest"].append(run(_OURS, ours_arguments))
            shutil.rmtree(store)
            runs["sklearn load_svmlight_file"].append(run(_THEIRS, [str(text)]))
    finally:
        shutil.rmtree(work)
    if len({(one["nnz"], one["n_samples"]) for several in runs.values() for one in several}) != 1:
        raise SystemExit("the two did not read the same rows")
    results = {}
    for name, several in runs.items():
        seconds = statistics.median(one["seconds"] for one in several)
        results[name] = {
            "seconds": seconds,
            "mb_per_s": text_bytes / seconds / 1e6,
            "peak_anon_bytes": max(one["peak_anon_bytes"] for one in several),
            "runs": several,
        }
    ours, theirs = results.values()
    report = {
        "text_bytes": text_bytes,
        "nnz": int(ours["runs"][0]["nnz"]),
        "repeats": repeats,
        "threads": options.threads,
        "results": results,
        "ratio": theirs["seconds"] / ours["seconds"],
    }
    print(markdown(report))
    if options.figures is not None:
        rows = [
            {"program": name, "mb_per_s": row["mb_per_s"], "peak_anon_bytes": row["peak_anon_bytes"]}
            for name, row in results.items()
        ]
        write_figures(options.figures, rows, text_bytes=text_bytes)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "ingest.json").write_text(json.dumps(report, indent=1) + "\n")
        (options.out / "ingest.md").write_text(markdown(report) + "\n")


if __name__ == "__main__":
    main()
