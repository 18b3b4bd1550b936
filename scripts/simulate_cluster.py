#!/usr/bin/env python3
"""What a fit on 1 to 1,000 workers would take, from prices that were measured on few: computed, not measured.

A pass is a sum of prices times how many of each it takes (`bigsvm/solvers/shard_seconds.py`, the formula of
`bigsvm plan --workers`).  This script

1. measures passes on 1, 2 and 4 worker processes of this machine, each with `--cores` of a core by a cgroup's quota,
   for several numbers of rows, features, shards and rounds; or takes them from runs (`--run`, their events.jsonl);
2. fits prices to the passes on 1 worker, and to those on 1 and 2, and compares what they foretell of 2 and 4;
3. prints times to a gap of 1e-3 for up to 1,000 workers, without and with lost workers: by the nominal prices of the
   plan, and with what programs were seen to cost here in addition (tasks, parts, the caller's turns).

The passes that a fit takes come from `docs/figures`: those of one machine from linear.json (2M x 1M sparse rows), the
factor of shards from cluster-passes.json.

    scripts/simulate_cluster.py --figures docs/figures/cluster-computed.json
    scripts/simulate_cluster.py --measured docs/figures/cluster-computed.json       passes of an earlier start
    scripts/simulate_cluster.py --run fit1.run --run fit2.run
    scripts/simulate_cluster.py --smoke
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent / "benchmarks"))  # where the package `bench` is

import numpy as np
from bench.cluster_tables import cluster_computed, cluster_foretold
from bench.passages import OUT_OF_CORE
from bench.record import ROOT, write_figures
from cluster.cages import Cluster
from cluster.passes import MODEL, Measured, fit, measured
from cluster.prices import fitted, foretold, with_losses
from cluster.rows import write_rows

from bigsvm.config import FitConfig
from bigsvm.solvers import shard_tasks
from bigsvm.solvers.shard_seconds import NOMINAL, Prices, ShardedPass, pass_seconds, passes_factor
from bigsvm.solvers.shards import rounds_for, shards_of

WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
ROW_BYTES = 480  # of 60 entries, as in a terabyte of text
HOURS = (24.0, 4.0)  # between two losses of one worker
_PROBLEM = "sparse, 2M x 1M, 142M entries"  # of linear.json


class Trial(NamedTuple):
    """A fit that is measured: rows and features of the store, shards, rounds a pass."""

    rows: int
    features: int
    shards: int
    rounds: int


TRIALS = (
    Trial(120_000, 20_000, 8, 16),
    Trial(40_000, 20_000, 8, 16),
    Trial(40_000, 20_000, 8, 64),
    Trial(40_000, 20_000, 16, 32),
    Trial(40_000, 400_000, 8, 16),
)
SMOKE = (Trial(4_000, 2_000, 2, 4),)


def measure(work: Path, options: argparse.Namespace) -> list[Measured]:
    """All trials on each number of workers."""
    found = []
    trials = SMOKE if options.smoke else TRIALS
    for rows, features in {(trial.rows, trial.features) for trial in trials}:
        write_rows(work / f"{rows}-{features}.zarr", rows, features)
    for workers in options.workers:
        with Cluster(work / f"on-{workers}", workers, None if options.smoke else options.cores) as cluster:
            for number, trial in enumerate(trials):
                out = work / f"run-{workers}-{number}"
                fit(cluster, work / f"{trial.rows}-{trial.features}.zarr", out, [
                    *(*MODEL, "--memory", "400MiB"),
                    *("--shards", str(trial.shards), "--rounds-per-pass", str(trial.rounds), "--tol", "1e-12"),
                    *("--max-passes", str(options.passes), "--scratch", str(work / "scratch")),
                ])  # fmt: skip
                found.append(measured(out))
    return found


def save_byte(folder: Path, nbytes: int) -> float:
    """Seconds of a byte of a shard's save, written alone."""
    alpha = np.random.default_rng(0).random(nbytes // 8)
    began = time.monotonic()
    shard_tasks.write_home(str(folder), 0, {"rounds": 1, "alpha": alpha})
    return (time.monotonic() - began) / nbytes


def row_of(one: Measured) -> dict[str, Any]:
    """A measured pass as the JSON has it; `of_row` takes it back."""
    return {"kind": "measured", **one.work._asdict(), **{k: v for k, v in one._asdict().items() if k != "work"}}


def of_row(row: dict[str, Any]) -> Measured:
    """What `row_of` gave."""
    work = ShardedPass(*(row[name] for name in ShardedPass._fields))
    return Measured(work, row["workers"], row["work_s"], row["sum_s"], row["caller_s"])


def compared(passes: Sequence[Measured], known: Sequence[int], save_price: float) -> list[dict[str, Any]]:
    """What prices of passes on `known` workers foretell of the others, beside what was measured."""
    prices = fitted([one for one in passes if one.workers in known], save_price)
    return [
        {
            "kind": "compared", "from": list(known), "workers": one.workers, "shards": one.work.shards,
            "rounds": one.work.rounds, "data_bytes": one.work.data_bytes, "weight_bytes": one.work.weight_bytes,
            "measured_s": one.whole, "foretold_s": (told := foretold(one, prices).whole), "off": told / one.whole - 1.0,
        }
        for one in passes
        if one.workers not in known
    ]  # fmt: skip


def with_programs(prices: Prices, cores: float) -> Prices:
    """Nominal prices of disks and network, and what programs cost here, on whole cores.

    prices : of workers with such a part of a core each, and a scheduler and caller with a whole one
    """
    mine = {name: getattr(prices, name) * cores for name in ("part", "part_byte", "save")}
    return NOMINAL._replace(
        **mine, task=prices.task * (1.0 + cores) / 2.0, turn=prices.turn, turn_byte=prices.turn_byte
    )


class Passes(NamedTuple):
    """To a gap of 1e-3, as they were measured: of one machine, and a in the factor 1 + a L / P of shards."""

    one: float
    a: float


def passes_needed(figures: Path) -> Passes:
    """From the JSON files of docs/figures.  Raises SystemExit where they have no such row."""
    rows = json.loads((figures / "linear.json").read_text())["rows"]
    for row in rows:
        if (row["title"], row["loss"], row["solver"]) == (_PROBLEM, "hinge", OUT_OF_CORE):
            return Passes(float(row["to"]["0.001"]["passes"]), shards_cost(figures))
    raise SystemExit(f"linear.json has no fit of {_PROBLEM}, hinge, {OUT_OF_CORE}")


def shards_cost(figures: Path) -> float:
    """a of the factor 1 + a L / P, by least squares over all fits on shards of cluster-passes.json."""
    rows = json.loads((figures / "cluster-passes.json").read_text())["rows"]
    one = {row["problem"]: row["passes"] for row in rows if row["shards"] == 1}
    pairs = [
        (row["shards"] / row["rounds"], row["passes"] / one[row["problem"]] - 1.0) for row in rows if row["shards"] > 1
    ]
    return sum(x * y for x, y in pairs) / sum(x * x for x, _ in pairs)


def sharded(data_bytes: float, features: int) -> ShardedPass:
    """Rows of `ROW_BYTES` in as many shards and rounds as the plan makes of them."""
    shards, weight_bytes = shards_of(FitConfig(), int(data_bytes)), 4 * features  # float32, at a gap of 1e-3
    rounds = rounds_for(shards, weight_bytes, int(data_bytes))
    return ShardedPass(data_bytes, data_bytes / ROW_BYTES, float(weight_bytes), shards, rounds)


def computed(
    needed: Passes, prices: dict[str, Prices], workers: Sequence[int] = WORKERS
) -> list[dict[str, Any]]:  # fmt: skip
    """Times to a gap of 1e-3: a row for each size, width and number of workers; seconds by the name of the prices."""
    rows = []
    for data_bytes in (1e12, 1e13):
        for features in (1_000_000, 100_000_000):
            work = sharded(data_bytes, features)
            passes = needed.one * passes_factor(work.shards, work.rounds, needed.a)
            for k in workers:
                row: dict[str, Any] = {
                    "kind": "computed", "data_bytes": data_bytes, "features": features, "workers": k,
                    "used": min(k, work.shards), "shards": work.shards, "rounds": work.rounds, "passes": passes,
                }  # fmt: skip
                for name, price in prices.items():
                    one = pass_seconds(work, k, price)
                    seconds = passes * one.whole
                    lost = {str(h): with_losses(seconds, work, k, price, h * 3600.0) for h in HOURS}
                    row[name] = {"pass": one._asdict(), "seconds": seconds, "lost": finite(lost)}
                rows.append(row)
    return rows


def finite(seconds: dict[str, float]) -> dict[str, float | None]:
    """JSON has no infinity: None where a fit never ends."""
    return {name: value if value < float("inf") else None for name, value in seconds.items()}


def main() -> None:
    """Measure, fit, compare, compute."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, action="append", default=[], help="folder of a run to take passes from")
    parser.add_argument("--measured", type=Path, help="figures of an earlier start, whose passes are taken")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4], help="processes that are measured")
    parser.add_argument("--cores", type=float, default=0.25, help="part of a core that a worker has")
    parser.add_argument("--passes", type=int, default=6, help="of each fit; the first does not count")
    parser.add_argument("--figures", type=Path, help="JSON for docs/figures")
    parser.add_argument("--work", help="folder on a disk; a temporary one by default")
    parser.add_argument("--smoke", action="store_true", help="one worker, one small fit")
    options = parser.parse_args()
    if options.smoke:
        options.workers, options.passes = [1], 3
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        work = Path(folder)
        if options.measured:
            earlier = json.loads(options.measured.read_text())
            passes = [of_row(row) for row in earlier["rows"] if row["kind"] == "measured"]
            save_price, options.cores = earlier["prices"]["measured"]["save_byte"], earlier["cores"]
        else:
            passes = [measured(run) for run in options.run] or measure(work, options)
            save_price = save_byte(work / "save", 1 << (20 if options.smoke else 26))
    there = sorted({one.workers for one in passes})
    rows = [row_of(one) for one in passes]
    for count in range(1, len(there)):
        rows += compared(passes, there[:count], save_price)
    here = fitted(passes, save_price)
    needed = passes_needed(ROOT / "docs" / "figures")
    prices = {"nominal": NOMINAL, "programs": with_programs(here, options.cores)}
    rows += computed(needed, prices)
    document = {
        "cores": options.cores, "prices": {name: one._asdict() for name, one in {"measured": here, **prices}.items()},
        "passes": needed._asdict(), "row_bytes": ROW_BYTES, "rows": rows,
    }  # fmt: skip
    print("\n".join(cluster_foretold(document) + cluster_computed(document)))
    if options.figures:
        write_figures(options.figures, **document)


if __name__ == "__main__":
    main()
