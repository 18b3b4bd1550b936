"""Small fits before the user's, which compile (or load) all compiled code that the user's fit will call.

A few noisy rows of the store's kind take the same path as the real rows: they are opened in memory, staged or streamed,
then come context, solver, proofs and model.  So exactly the code that the plan will use is compiled.  Nothing here
knows the solvers: each says which small fits call all of its code (`Solver.small_fits`).

The problem is the user's, except for C and the parameters of loss and kernel.  No type depends on these, and with the
user's own values even a small problem may take for ever.  Small fits are limited by counters, have their own budget,
seed and scratch folder, and leave nothing behind.
"""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from bigsvm.budget import MemoryBudget
from bigsvm.compile_in_child import compiled_in_child
from bigsvm.config import OPTIONS, FitConfig
from bigsvm.events import Emit, silent
from bigsvm.files.temporary import temporary_folder
from bigsvm.model.decide import models_of
from bigsvm.problem.axis import ModelAxis
from bigsvm.problem.kernel import Definite, Kernel
from bigsvm.problem.loss import loss_named
from bigsvm.problem.problem import Problem
from bigsvm.run.execute.signals import Stop
from bigsvm.run.execute.small_rows import kind_of, rows_like, small_rows
from bigsvm.run.fit.loop import Loop
from bigsvm.run.fit.open_rows import open_rows
from bigsvm.run.fit.plan import RESIDENT_DATA, Plan
from bigsvm.run.fit.training import begin, make_context
from bigsvm.run.start.earlier import small_earlier
from bigsvm.run.start.take_over import take_over
from bigsvm.solvers.base import Need, SmallFit
from bigsvm.solvers.dcd.active_row_buffer import whole_row_buffer
from bigsvm.store.blocks import RowBlocks
from bigsvm.store.copy.block_coding import call_all
from bigsvm.store.precompile_reading import precompile_reading
from bigsvm.store.working_order import MANY_FEATURES
from bigsvm.tasks import SerialMapper
from bigsvm.units import MIB

_WIDTH = 4  # features
_BLOCKS = 8  # blocks of the rows, if they stream
_TOGETHER = 2  # blocks of a group
_STEPS = 60  # most steps of a small fit
_EPSILON = 0.25  # targets have a deviation of about 1, so some rows lie within the tube
_NU = 0.8  # relative to the largest feasible nu.  Classes overlap, and with a smaller nu the margin would vanish
_BUDGET = 64 * MIB
_CLASSES = 3  # for kernel solvers, which train one model after another; three classes make several pairs
_MODELS = 32  # models that are trained together; more do not change any type
_SWEEPS = 4  # sweeps of the row buffer in a pass
_SORTED_ROWS = 256  # enough for the rank test to find that rows are sorted


def precompile(store: RowBlocks, plan: Plan, config: FitConfig, emit: Emit = silent) -> None:
    """Compile, or load, all compiled code that a fit of `store` by `plan` calls.

    A child process compiles (`compile_in_child.py`), so that the memory of the compiler is gone when the fit begins.
    """
    precompile_reading(store, emit)
    fits = plan.solver.small_fits(config.tol, plan.resident)
    kind = kind_of(store)
    for load in (True, False):
        some = [fit for fit in fits if fit.load == load]
        if some:
            work = partial(_make_small_fits, store, plan, config, some)
            compiled_in_child(("fit", *kind, *_kind_of_plan(plan, config), some), work, load, emit)
    if plan.mode == "staged":
        # Compiled, but not loaded here: loading takes next to no memory, and few working copies are of sorted rows.
        compiled_in_child(("staging", *kind), partial(_stage_sorted, store, plan, config), load=False, emit=emit)


def _kind_of_plan(plan: Plan, config: FitConfig) -> tuple[Any, ...]:
    """All that decides which functions are called, with which types, apart from the store's kind and the small fits."""
    problem = plan.problem
    asked = [getattr(config, name) for name, option in OPTIONS.items() if option.solvers and option.changes == "result"]
    return (
        repr(plan.solver), *asked, config.stop, plan.mode, plan.shards, plan.spilled, plan.decides_kernel,
        problem.loss.name, problem.bias, problem.kernel.name, problem.kernel.definite.how, problem.pairs,
        len(problem.classes), min(problem.n_models, _MODELS), config.class_weight is None, config.warm_start is None,
        problem.axis is not None, problem.member is not None,
        plan.row_buffer_bytes > 0, plan.row_buffer_packed, plan.cache.memory_bytes > 0, plan.cache.disk_bytes > 0,
    )  # fmt: skip


def _make_small_fits(store: RowBlocks, plan: Plan, config: FitConfig, fits: list[SmallFit]) -> None:
    for fit in fits:
        _fit_few_rows(store, plan, config, fit)


def _fit_few_rows(store: RowBlocks, plan: Plan, config: FitConfig, fit: SmallFit) -> None:
    """One small fit from its rows to its model, as `fit_store` makes it."""
    problem = _small_problem(plan.problem, config, fit)
    n, by_values = fit.n_samples, problem.kernel.name == "precomputed"
    small = small_rows(store, n, _WIDTH, len(problem.classes), by_values)
    plan, config = _small_plan(plan, problem, small, fit), _small_config(config, fit)
    budget, mapper = MemoryBudget(_BUDGET), SerialMapper()
    with ExitStack() as stack:
        scratch = stack.enter_context(temporary_folder())
        data, survey = stack.enter_context(open_rows(small, plan, config, scratch, budget, mapper, silent))
        ctx = make_context(data, survey, plan, config, mapper, budget, scratch, stack, silent)
        begun = begin(problem, plan, ctx, stack, silent)
        if config.warm_start is not None:
            earlier = small_earlier(plan.solver, begun.problem, data)
            take_over(earlier, plan.solver, begun.problem, begun.state, begun.prover, ctx)
        Loop(
            begun.problem, plan.solver, begun.state, config, ctx, begun.prover, survey.data_bytes, Stop(), None, silent,
            most_steps=_STEPS,
        ).run()  # fmt: skip
        if plan.solver.proof == "linear":  # the loop may have deferred all proofs, and they use other code
            begun.prover.prove()
        begun.prover.model(begun.problem, data, {})
        for vector in begun.prover.alpha:
            vector.close()


def _small_problem(problem: Problem, config: FitConfig, fit: SmallFit) -> Problem:
    """The user's problem with an easy C and kernel, and only as many models as types depend on."""
    classes, positive, negative = problem.classes, problem.positive[:_MODELS], problem.negative[:_MODELS]
    # Kernel solvers train one model after another, so no type depends on the number of classes.
    if config.of_kernel and not (problem.regression or problem.one_class):
        classes = classes[: min(_CLASSES, fit.n_samples // 2)]
        positive, negative = models_of(len(classes), problem.pairs)
    if problem.joint:  # its loops need one model for each class
        classes = classes[:_MODELS]
    # The largest feasible nu is twice the share of the smaller class: 2 / k for one of k equal classes against others.
    feasible = 1.0 if problem.pairs or len(classes) < 3 else 2.0 / len(classes)
    weight = 1.0 if config.class_weight is None else 2.0
    axis = problem.axis
    if axis is not None:
        fold = (np.arange(fit.n_samples) % 2).astype(np.uint8)
        axis = ModelAxis.of(fold, axis.held_out[:_MODELS], axis.weight[:_MODELS])
    # With --assume-psd a fit that refutes the assumption is refused; these rows must not cause that.
    vouched = problem.kernel.definite.how == "assumed" and problem.kernel.name != "precomputed"
    definite = Definite("checked") if vouched else problem.kernel.definite
    return dataclasses.replace(
        problem,
        loss=loss_named(problem.loss.name, _EPSILON, _NU * feasible),
        C=np.full(len(positive), fit.C),
        class_weight=np.full(max(len(classes), 1), weight),
        classes=classes,
        positive=positive,
        negative=negative,
        kernel=Kernel(problem.kernel.name, 1.0 / _WIDTH, 2, 1.0, definite),
        centre=problem.centre and problem.centre._replace(mu=np.full(_WIDTH, 0.5)),
        axis=axis,
        member=None
        if problem.member is None
        else np.tile(np.arange(len(classes), dtype=np.uint8) % 2, (len(classes), 1)),
    )


def _small_plan(plan: Plan, problem: Problem, small: RowBlocks, fit: SmallFit) -> Plan:
    """The user's plan for a few rows: streamed rows make several blocks, and not all rows fit in the row buffer."""
    n = small.n_samples
    block_rows = n if plan.resident else max(n // _BLOCKS, 1)
    row_buffer = whole_row_buffer(small, plan.row_buffer_packed) // 3
    return dataclasses.replace(
        plan,
        solver=dataclasses.replace(plan.solver, **dict(fit.options)),  # type: ignore[type-var]
        problem=problem,
        budget_bytes=_BUDGET,
        block_rows=block_rows,
        n_blocks=-(-n // block_rows),
        extent_rows=block_rows,
        group_blocks=1 if plan.resident else _TOGETHER,
        row_buffer_bytes=min(plan.row_buffer_bytes, row_buffer),
        row_buffer_sweeps=min(plan.row_buffer_sweeps, _SWEEPS),
        piece_rows=_TOGETHER * block_rows,
        staging_workers=1,
        shards=min(plan.shards, 2),
        rounds_per_pass=min(plan.rounds_per_pass, _SWEEPS),
        data_bytes=small.refs(n)[0].nbytes,
        needs=(Need(RESIDENT_DATA, 0),),
        cache=plan.cache._replace(
            memory_bytes=min(plan.cache.memory_bytes, MIB), disk_bytes=min(plan.cache.disk_bytes, MIB)
        ),
        scratch_bytes=0,
    )


def _small_config(config: FitConfig, fit: SmallFit) -> FitConfig:
    """The user's options, except for those that say where to run, how long, and to which tolerance."""
    return dataclasses.replace(
        config, tol=fit.tol, max_passes=fit.passes, max_time=None, seed=0, threads=1, scratch=None, scratch_limit=None,
        scheduler="serial", scheduler_file=None, workers=None,
    )  # fmt: skip


def _stage_sorted(store: RowBlocks, plan: Plan, config: FitConfig) -> None:
    """Make a working copy of sorted rows, which shuffles them; sparse rows have so many features that these are
    renumbered."""
    n, n_classes = _SORTED_ROWS, len(plan.problem.classes)
    y = np.arange(n) * (n_classes or n) // n
    small = rows_like(store, np.ones((n, 2)), y, n_classes, last_feature=MANY_FEATURES + 1)
    fit = SmallFit(n)
    plan, config = _small_plan(plan, plan.problem, small, fit), _small_config(config, fit)
    call_all(store.dtype, store.index_dtype, store.layout)
    with (
        temporary_folder() as folder,
        open_rows(small, plan, config, folder, MemoryBudget(_BUDGET), SerialMapper(), silent) as (data, _),
    ):
        data.read(data.refs(n)[0])
