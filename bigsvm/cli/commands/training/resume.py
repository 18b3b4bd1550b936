"""bigsvm resume: continues a fit that was stopped."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import click

from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.commands.training.fit import train
from bigsvm.cli.job import Job
from bigsvm.cli.options import add, option_of, storage_option
from bigsvm.cli.record import RUN
from bigsvm.cli.session import Session
from bigsvm.cli.types import LocalPath, Source
from bigsvm.errors import DataError, MissingInput
from bigsvm.store.remote.place import storing_by

_ELSEWHERE = ("scheduler", "scheduler_file", "workers", "worker_scratch", "threads")
"""Options about where a run continues; the bytes of its model do not depend on them."""


@bigsvm_command(
    help="Continue the fit whose record is RUN, from its last checkpoint.  The model has the same bytes as if it had "
    "never been stopped.  Without a checkpoint the fit starts again.\n\n"
    "The fit may continue elsewhere: on another cluster, or on none."
)
@click.argument("run", type=LocalPath())
@click.option(
    "--store",
    type=Source(),
    metavar="STORE",
    help="Where the store of the run is now, if it was moved; its rows are compared.",
)
@add([storage_option, *(option_of(name) for name in _ELSEWHERE)])
def command(session: Session, run: Path, store: str | None, **elsewhere: Any) -> int:
    from bigsvm.files.paths import check_own_files, not_permitted
    from bigsvm.observe.run_files import no_run_here

    check_own_files(run, "run")
    again = f"bigsvm fit STORE --run {run} --resume continues from its checkpoint, with the options that it began with"
    try:
        record = json.loads((run / RUN).read_bytes())
    except PermissionError as error:
        raise not_permitted(run / RUN, error) from error
    except OSError as error:
        raise no_run_here(run) from error
    except ValueError as error:
        raise DataError(f"run.json is not JSON: {error}", str(run), again) from error
    if not isinstance(record, dict) or not isinstance(record.get("job"), dict):
        raise DataError("run.json does not record the options of the fit", str(run), again)
    job = Job.of({**record["job"], "run": str(run)})
    given = {name: value for name, value in elsewhere.items() if value is not None}
    if "scheduler" in given or "scheduler_file" in given:  # the two options exclude each other
        given = {"scheduler": None, "scheduler_file": None, **given}
    job = dataclasses.replace(job, config=dataclasses.replace(job.config, **given), store=store or job.store)
    with storing_by(job.config):
        try:
            return train(session, job, resume=True)
        except MissingInput as error:
            if store is None and error.where == job.store:
                error.hint = f"if it was moved: bigsvm resume {run} --store PLACE"
                error.args = (error.what, error.where, error.hint)
            raise
