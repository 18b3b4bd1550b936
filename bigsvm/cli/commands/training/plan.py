"""bigsvm plan: shows what a fit would do and need."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from bigsvm.cli import text
from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.options import add, config_of, fit_options, take_rows
from bigsvm.cli.session import Session
from bigsvm.cli.types import Size, Source
from bigsvm.errors import UsageError
from bigsvm.units import parse_bytes


@bigsvm_command(
    help="Say what `bigsvm fit STORE` with the same options would do and need, without reading the data.\n\n"
    "Exit code 78: the budget is too small; the message names the smallest sufficient --memory or --scratch-limit.\n\n"
    "With --workers K it also says what each worker of a cluster would hold, how long a pass would take, and what "
    "limits it."
)
@click.argument("store", type=Source())
@add(fit_options)
@click.option(
    "--memory-per-worker",
    type=Size(percent=False),
    metavar="SIZE",
    help="With --workers: memory of each worker of a cluster; plan checks whether it is enough.",
)
@click.pass_context
def command(
    ctx: click.Context,
    session: Session,
    store: str,
    label: str | None,
    weight: str | None,
    empty_chunks: Any,
    memory_per_worker: str | None,
    **options: Any,
) -> int:
    if memory_per_worker is not None and options.get("workers") is None:
        raise UsageError("--memory-per-worker needs --workers", hint="give their number: --workers K")
    chosen = {"split": "recorded", **take_rows(options)}
    config = config_of(ctx, options)

    from bigsvm.run.fit.plan import make_plan
    from bigsvm.run.fit.scales import known_scale_warning
    from bigsvm.run.start.targets import open_for
    from bigsvm.run.start.unused_options import unused_options
    from bigsvm.run.workers.cluster_plan import cluster_plan, described

    data = open_for(store, config.regression, label=label, weight=weight, empty_chunks=empty_chunks, **chosen)
    session.warn_of(data)
    plan = make_plan(data, config)
    of_fit = dataclasses.replace(config, workers=None)  # which means another thing here
    for message in (*unused_options(of_fit, plan.solver.name, plan.shards), known_scale_warning(data, plan)):
        if message is not None:
            session.warn(message)
    document, rows = plan.document(), plan.describe()
    document["scales_known"] = bool(data.content.get("column_scale"))
    if not data.content and config.kernel != "precomputed":
        rows.append(("column scales", "not known before rows are read; fit looks at them, and warns if they matter"))
    if config.workers is not None:
        each = None if memory_per_worker is None else parse_bytes(memory_per_worker)
        document["cluster"] = cluster_plan(plan, config.workers, each)
        rows += described(document["cluster"])
    return session.finish(document, f"plan for {text.label(store)}\n" + text.rows(rows), only_told=True)
