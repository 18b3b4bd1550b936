"""bigsvm plan: what fit would do and need."""

from __future__ import annotations

from typing import Any

import click

from bigsvm.cli import text
from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.options import add, config_of, fit_options, take_rows
from bigsvm.cli.session import Session
from bigsvm.cli.types import Source


@bigsvm_command(
    help="Say what `bigsvm fit STORE` with the same options would do and need, without reading the data.\n\n"
    "Exit 78: it cannot fit; names the smallest --memory or --scratch-limit that would do."
)
@click.argument("store", type=Source())
@add(fit_options)
@click.pass_context
def command(
    ctx: click.Context,
    session: Session,
    store: str,
    label: str | None,
    weight: str | None,
    empty_chunks: Any,
    **options: Any,
) -> int:
    chosen = take_rows(options)
    config = config_of(ctx, options)

    from bigsvm.run.fit.plan import make_plan
    from bigsvm.store.formats.opener import open_store

    data = open_store(store, label=label, weight=weight, empty_chunks=empty_chunks, **chosen)
    session.warn_of(data)
    plan = make_plan(data, config)
    return session.finish(plan.document(), f"plan for {store}\n" + text.rows(plan.describe()))
