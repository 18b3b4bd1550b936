"""What one worker of a cluster holds, from the plan alone."""

from __future__ import annotations

from bigsvm.run.fit.plan import Plan
from bigsvm.run.fit.sizes import READ_DEPTH
from bigsvm.solvers.dcd.dual_cd_arrays import LEAP_ALPHA
from bigsvm.solvers.dcd.shards.moved_alpha import moved_bytes

_WEIGHTS = 9  # vectors of the size of w: published ones of two rounds, of a proof, local ones, a change, two of a sum
_ROW = 1 + 8 + 8  # bytes a row and model of dcd: whether the row streams, alpha, and alpha that is being proved
_LEAPS = 8  # more bytes with momentum: alpha before its last step


def row_and_model_bytes(plan: Plan) -> int:
    """Bytes of each row of a shard and each of its models, for dcd."""
    return _ROW + (_LEAPS if any(need.what == LEAP_ALPHA for need in plan.needs) else 0)


def worker_bytes(plan: Plan, workers: int) -> int:
    """Bytes that each of so many workers holds at most, beside its interpreter.

    Each opens the store, and has the names of its features, and the values of its text columns, as the caller has.
    With shards: their alpha (slacks and products of primal solvers, too), rows kept in memory, the weights, matrices,
    and rows on their way (all rows, where the plan keeps them in memory).  Without: tasks over blocks, of
    which the largest holds all that the plan counts as a window, and what is as large as w.
    """
    shape = plan.shape
    window = plan.window_bytes
    weights = _WEIGHTS * shape.weight_bytes * (shape.n_features + 1) * shape.n_models
    if plan.shards == 1:
        return plan.fixed_bytes + weights + (0 if plan.resident else READ_DEPTH * window)
    here = -(-plan.shards // max(workers, 1))
    rows = -(-shape.n_samples // plan.shards)
    if not plan.solver.in_rounds:
        of_rows = sum(need.nbytes for need in plan.needs if need.may_spill) + plan.row_buffer_bytes
        each, parts = (sum(need.nbytes for need in plan.needs if need.held == who) for who in ("worker", "shard"))
        return plan.fixed_bytes + weights + here * ((of_rows + parts) // plan.shards) + each + window
    kept = plan.row_buffer_bytes // plan.shards
    share = shape.weight_bytes * (shape.n_features + 1) * shape.n_models  # of w, as the shard changed it last
    each = row_and_model_bytes(plan)
    moved = -(-rows // plan.rounds_per_pass) * moved_bytes(shape.n_models, shape.weighted, shape.regression, rows)
    return plan.fixed_bytes + weights + here * (rows * shape.n_models * each + kept + share + moved) + window
