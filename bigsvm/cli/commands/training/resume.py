"""bigsvm resume: go on with a fit that was stopped."""

from __future__ import annotations

import json
from pathlib import Path

import click

from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.commands.training.fit import train
from bigsvm.cli.job import Job
from bigsvm.cli.options import add, storage_option
from bigsvm.cli.record import RUN
from bigsvm.cli.session import Session
from bigsvm.errors import DataError, MissingInput
from bigsvm.store.remote.place import storing_by


@bigsvm_command(
    help="Go on with the fit whose record is RUN, from its last checkpoint; the model has the same bytes as if it had "
    "never been stopped.  Without a checkpoint it begins again."
)
@click.argument("run", type=click.Path(path_type=Path))
@add([storage_option])
def command(session: Session, run: Path) -> int:
    from bigsvm.files.paths import check_own_files

    check_own_files(run, "run")
    try:
        record = json.loads((run / RUN).read_bytes())
    except OSError as error:
        raise MissingInput("no record of a run here", str(run), "a run is a directory with run.json") from error
    except ValueError as error:
        raise DataError(f"run.json is not JSON: {error}", str(run)) from error
    if not isinstance(record, dict) or not isinstance(record.get("job"), dict):
        raise DataError("run.json does not say what was asked for", str(run))
    job = Job.of({**record["job"], "run": str(run)})
    with storing_by(job.config):
        return train(session, job, resume=True)
