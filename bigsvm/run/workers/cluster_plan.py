"""An estimate of a pass on a cluster, from the plan and nominal rates; used only by `bigsvm plan`.

In a pass on K workers the fullest worker reads its rows, P sums are formed, and the shards are saved.  More workers
shorten only the reading.  A pass on L shards with P sums advances less than one on a single machine, by a factor of
about 1 + L / P (docs/cluster.md).  The formula is in `solvers/shard_seconds.py`.
"""

from __future__ import annotations

from typing import Any

from bigsvm.config import BASE_BYTES
from bigsvm.errors import PlanRefused
from bigsvm.run.fit.plan import Plan
from bigsvm.run.workers.worker_memory import worker_bytes
from bigsvm.solvers.shard_seconds import ShardedPass, pass_seconds, passes_factor
from bigsvm.solvers.shards import weights_of
from bigsvm.units import MIB, show_bytes

HERE, READING, SUMS, SAVES, SHARDS = "the calling process", "reading", "sums", "saves", "shards"


def cluster_plan(plan: Plan, workers: int, memory_per_worker: int | None) -> dict[str, Any]:
    """The memory of each worker, and the part of a pass that takes longest.

    memory_per_worker : bytes that a worker may use in total; None if unknown

    Returns
    -------
    dict : workers; used (the other workers have no shard); shards_per_worker (of the fullest); worker_bytes; read_s,
        sums_s, saves_s and pass_s, seconds for a pass (None if training is not on the workers); passes_factor, passes
        relative to a single machine; limit, the part that takes longest

    Raises PlanRefused if the memory of a worker is too small.
    """
    needed = worker_bytes(plan, workers) + BASE_BYTES
    if memory_per_worker is not None and memory_per_worker < needed:
        raise PlanRefused(
            f"{show_bytes(memory_per_worker)} are too little for a worker: its share needs {show_bytes(needed)}",
            hint=f"use --memory-per-worker {-(-needed // MIB)}MiB, more --workers or less --memory",
        )
    used = min(workers, plan.shards)
    per_worker = -(-plan.shards // used)
    found: dict[str, Any] = {
        "workers": workers, "used": used, "shards_per_worker": per_worker, "worker_bytes": needed,
        "read_s": None, "sums_s": None, "saves_s": None, "pass_s": None, "passes_factor": 1.0, "limit": HERE,
    }  # fmt: skip
    if plan.shards == 1:
        return found
    rows, weights = plan.shape.n_samples * plan.shape.n_models, weights_of(plan.shape)
    seconds = pass_seconds(ShardedPass(plan.data_bytes, rows, weights, plan.shards, plan.rounds_per_pass), workers)
    found.update(read_s=seconds.parts, sums_s=seconds.sums, saves_s=seconds.saves, pass_s=seconds.whole)
    _, limit = max((seconds.sums, SUMS), (seconds.saves, SAVES), (seconds.parts, READING))
    found["limit"] = SHARDS if limit == READING and workers > plan.shards else limit
    if (
        plan.solver.in_rounds
    ):  # other solvers only sum the results of a whole pass, and need as many passes as with one shard
        found["passes_factor"] = passes_factor(plan.shards, plan.rounds_per_pass)
    return found


def described(found: dict[str, Any]) -> list[tuple[str, str]]:
    """The estimate as rows of a table: (name, text)."""
    rows = [
        (
            "workers",
            f"{found['used']:,} of {found['workers']:,} have shards, up to {found['shards_per_worker']:,} each; "
            f"{show_bytes(found['worker_bytes'])} of memory each",
        )
    ]
    if found["pass_s"] is None:
        return [*rows, ("a pass", "trains in the calling process, because there is one shard; --shards makes more")]
    what = "about {read_s:.3g} s of reading, {sums_s:.3g} s of sums and {saves_s:.3g} s of saves".format(**found)
    more = f"{found['passes_factor']:.2g} times the passes of one machine"
    return [*rows, ("a pass", f"{what}, by nominal rates; {more}"), ("limit", found["limit"])]
