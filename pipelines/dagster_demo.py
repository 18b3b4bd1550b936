"""A demonstration of three nights on synthetic data: `python -m pipelines.dagster_demo [FOLDER]`.

First night: promoted.  Second night, with new rows: promoted.  Third night, with drifted rows: refused, and the model
of the second night stays current.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import dagster as dg
import numpy as np

from bigsvm.store.ingest.ingest import ingest

_JOB = """store = "train.zarr"
holdout = "holdout.zarr"
registry = "registry"
note = "demonstration"

[fit]
loss = "hinge"
memory = "64MiB"

[gates]
min_accuracy = 0.8
max_drop = 0.05
challenger = "not_worse"

[drift]
max_mean_shift = 0.5
max_label_psi = 0.25
"""
_HOME = """telemetry:
  enabled: false
nux:
  enabled: false
"""


def make_rows(path: Path, seed: int, moved: float = 0.0) -> None:
    """A store of 2,000 rows with 10 features; `moved` shifts the fourth."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((2000, 10)).astype(np.float32)
    y = np.where(X @ np.linspace(-1.0, 1.0, 10) + 0.3 * rng.standard_normal(2000) > 0, 1.0, -1.0)
    X[:, 3] += moved
    ingest((X, y), path, overwrite=True)


def three_nights(folder: Path) -> list[bool]:
    """Run the nights in `folder`, which then has the job, the registry and Dagster's history; whether each promoted."""
    home = folder / "dagster_home"
    home.mkdir(parents=True, exist_ok=True)
    (home / "dagster.yaml").write_text(_HOME)
    config = folder / "job.toml"
    config.write_text(_JOB)
    os.environ["DAGSTER_DISABLE_TELEMETRY"] = "1"
    from pipelines.definitions import definitions, night_of

    make_rows(folder / "holdout.zarr", 0)
    promoted = []
    with dg.DagsterInstance.from_config(str(home)) as instance:
        nightly = definitions(config).resolve_job_def("nightly")
        for night, moved in enumerate((0.0, 0.0, 1.0), 1):
            make_rows(folder / "train.zarr", night, moved)
            day = night_of(datetime.now(UTC) - timedelta(days=3 - night))
            done = nightly.execute_in_process(
                instance=instance, raise_on_error=False, tags={"night": str(night)}, partition_key=day
            )
            promoted.append(done.success)
    return promoted


def main(args: list[str]) -> int:
    """Make the history; returns 0 if the nights ended as expected."""
    folder = Path(args[0] if args else "dagster-demo").absolute()
    promoted = three_nights(folder)
    click.echo("nights: " + ", ".join("promoted" if night else "refused" for night in promoted))
    click.echo(f"BIGSVM_JOB={folder}/job.toml DAGSTER_HOME={folder}/dagster_home dagster dev -m pipelines.definitions")
    return 0 if promoted == [True, True, False] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
