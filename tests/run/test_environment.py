"""Same options, same bytes, whatever the surroundings are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from bigsvm.store.ingest.ingest import ingest


def test_time_zone_locale_hash_seed_and_threads_do_not_matter(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 20)).astype(np.float32)
    ingest((X, np.array(["no", "yes", "é"])[np.argmax(X[:, :3], axis=1)]), tmp_path / "s.zarr")
    found = set()
    for number, surroundings in enumerate(
        (
            {"TZ": "UTC", "LC_ALL": "C", "PYTHONHASHSEED": "0", "BIGSVM_THREADS": "1"},
            {"TZ": "Asia/Kathmandu", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "1", "BIGSVM_THREADS": "2"},
            {"TZ": "America/St_Johns", "LC_ALL": "tr_TR.UTF-8", "PYTHONHASHSEED": "77", "BIGSVM_THREADS": "4"},
        )
    ):
        model = tmp_path / str(number)
        command = [
            sys.executable,
            "-m",
            "bigsvm",
            "fit",
            tmp_path / "s.zarr",
            "--memory",
            "64MiB",
            "-o",
            model,
            "--quiet",
        ]
        subprocess.run(command, check=True, env={**os.environ, **surroundings}, cwd=tmp_path)
        found.add(tuple((path.name, path.read_bytes()) for path in sorted(model.iterdir())))
    assert len(found) == 1
