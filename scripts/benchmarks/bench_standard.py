"""What `--scale standard` costs on sparse rows: CPU seconds a pass beside `--scale maxabs` and unscaled rows.

Rows stream within a tenth of their bytes, by newton-cg with the default loss and bias.  How much memory they would take
filled up, as scikit-learn would have them, is shown beside.

    python scripts/benchmarks/bench_standard.py --work DIR    # or --smoke
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import bigsvm
from bigsvm.events import EpochEnd, Event
from bigsvm.store.formats.opener import open_store
from bigsvm.store.ingest.ingest import ingest
from bigsvm.units import MIB, show_bytes

SCALES = ("none", "maxabs", "standard")
C = {"none": 1.0, "maxabs": 1.0, "standard": 1e-3}


def problem(n_samples: int, n_features: int, each: int) -> tuple[sp.csr_array, np.ndarray]:
    """Rows like those of a bag of words, with some features far more frequent than others; planted labels."""
    rng = np.random.default_rng(0)
    columns = (n_features * rng.random(n_samples * each) ** 3).astype(np.int32)
    values = (rng.random(len(columns)) + 0.1).astype(np.float32)
    X = sp.csr_array((values, columns, np.arange(n_samples + 1) * each), shape=(n_samples, n_features))
    X.sum_duplicates()
    score = X @ rng.standard_normal(n_features)
    return X, np.where(score - np.median(score) + 0.3 * rng.standard_normal(n_samples) > 0, 1, -1)


def measured(path: Path, scale: str, memory: int, scratch: Path) -> dict[str, Any]:
    """One fit: CPU seconds a pass, passes, and anonymous memory above the base."""
    epochs: list[tuple[float, float]] = []

    def watch(event: Event) -> None:
        if isinstance(event, EpochEnd):
            epochs.append((time.process_time(), event.passes))

    result = bigsvm.fit(
        open_store(path, scale=scale), solver="newton-cg", C=C[scale], tol=1e-2, memory=memory, threads=1,
        scratch=str(scratch), emit=watch,
    )  # fmt: skip
    (began, before), (ended, after) = epochs[0], epochs[-1]
    figures, held = result.figures, result.memory
    return {
        "scale": scale,
        "passes": figures["passes"],
        "seconds a pass": (ended - began) / max(after - before, 1),
        "held": held["peak_anon_bytes"] - held["base_bytes"],
        "gap": figures["relative_gap"],
        "status": result.status,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--features", type=int, default=30_000)
    parser.add_argument("--each", type=int, default=60, help="entries of a row, before equal ones are one")
    parser.add_argument("--memory", default=None, help="[default: a tenth of the rows, and 32 MiB at least]")
    parser.add_argument("--work", type=Path, default=None)
    parser.add_argument("--smoke", action="store_true", help="a small problem")
    asked = parser.parse_args()
    if asked.smoke:
        asked.rows, asked.features, asked.each = 300, 40, 6
    X, y = problem(asked.rows, asked.features, asked.each)
    nbytes = X.data.nbytes + X.indices.nbytes
    memory = asked.memory or max(nbytes // 10, 32 * MIB)
    shape = f"{asked.rows:,} x {asked.features:,}, {X.nnz:,} entries"
    print(f"{shape}, {show_bytes(nbytes)}; filled up {show_bytes(4 * asked.rows * asked.features)}")
    with tempfile.TemporaryDirectory(dir=asked.work) as folder:
        ingest((X, y), Path(folder) / "rows.zarr")
        del X
        print(
            "| scale | CPU seconds a pass | passes | anonymous memory | relative gap |\n| --- | --- | --- | --- | --- |"
        )
        for scale in SCALES:
            found = measured(Path(folder) / "rows.zarr", scale, memory, Path(folder))
            if found["status"] != "converged":
                raise SystemExit(f"{scale}: {found['status']} at a gap of {found['gap']:.3g}")
            held, seconds = show_bytes(found["held"]), found["seconds a pass"]
            print(f"| {scale} | {seconds:.4f} | {found['passes']:.0f} | {held} | {found['gap']:.2g} |")


if __name__ == "__main__":
    main()
