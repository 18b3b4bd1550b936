"""bigsvm demo: from no files at all to a proved model, on data several times the memory budget."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from bigsvm.cli import text
from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.session import Session
from bigsvm.cli.types import OutputPath, Size
from bigsvm.config import FitConfig
from bigsvm.errors import OutputError
from bigsvm.events import CertificateMade, Emit, Event
from bigsvm.units import parse_bytes, show_bytes, show_seconds

TIMES_THE_BUDGET = 5
HELD_OUT_ROWS = 20_000
_PROVED = ("objective", "dual_objective", "relative_gap", "certificate")
_MEASURED = ("n_rows", "accuracy", "roc_auc", "average_precision")


@bigsvm_command(
    help="Make a data set several times the memory budget, train on it, prove the model and evaluate it.\n\n"
    "It needs no files and no network, ten to thirty seconds, and 300 MB of disk until it ends."
)
@click.option("--dir", "folder", type=OutputPath(), metavar="DIR", help="Work in DIR and keep it.")
@click.option(
    "--rows", type=click.IntRange(min=10), metavar="N", help="Number of rows.  [default: so that data is 5 x --memory]"
)
@click.option(
    "--memory", type=Size(percent=False), default="32MiB", show_default=True, metavar="SIZE", help="Memory budget."
)
@click.option("--keep", is_flag=True, help="Keep the folder with the data and the model.")
def command(session: Session, folder: Path | None, rows: int | None, memory: str, keep: bool) -> int:
    with _workplace(folder, keep) as place:
        result, code = _show(session, place, rows, memory, keep or folder is not None)
    return session.finish(result, "", result["status"], code)


def _show(session: Session, place: Path, rows: int | None, memory: str, kept: bool) -> tuple[dict[str, Any], int]:
    """Run the steps; each one reports on standard output when it is done (unless --json is given)."""
    from bigsvm.model.linear_model import load_model
    from bigsvm.run.apply.evaluate import evaluate
    from bigsvm.run.fit.fit import fit_store
    from bigsvm.run.fit.plan import make_plan
    from bigsvm.run.proof.certify import certify_model
    from bigsvm.store.formats.opener import open_store
    from bigsvm.store.ingest.demo_rows import HELD_OUT, ROW_BYTES, write_problem

    def say(*lines: str) -> None:
        if not session.as_json:
            click.echo("\n".join(lines))

    budget = parse_bytes(memory)
    rows = rows or TIMES_THE_BUDGET * budget // ROW_BYTES
    train, test, model = place / "train.zarr", place / "test.zarr", place / "demo.model"
    config = FitConfig.of(memory=budget, scratch=str(place / "scratch"))

    # The live display runs only within a step, so that it does not mix with these lines on the terminal.
    say(f"1. Data: {rows:,} sparse rows, labelled by a hidden linear rule, 3 % of the labels wrong.")
    with session.watching() as emit:
        write_problem(train, rows, 0, emit)
        write_problem(test, min(HELD_OUT_ROWS, rows), HELD_OUT, emit, "making held-out data")
    store = open_store(str(train))
    plan = make_plan(store, config)
    data_bytes = plan.document()["data_bytes"]
    times = data_bytes / budget
    say(
        f"   {store.n_features:,} features, {store.nnz:,} entries, {show_bytes(data_bytes)} decoded: "
        f"{times:.1f} times the memory budget of {show_bytes(budget)}.",
        "",
        "2. Plan: made from the store's metadata, before any row is read.",
        text.rows(plan.describe()),
        "",
        "3. Fit: until a relative duality gap of 1e-3 is proved.",
    )
    proofs: list[CertificateMade] = []
    with session.watching() as emit:
        fitted = fit_store(store, config, _keeping(proofs, emit))
    fitted.save_model(model)
    result = fitted.document(str(model), None)
    say(
        *map(_proof_line, proofs),
        f"   {fitted.status} in {text.seconds(result['seconds'])}, {result['passes']:.1f} passes over the data.",
        f"   memory: {text.memory(result['memory'])}",
        "",
        "4. Proof: the saved model and its dual point, read back and certified independently of the fit.",
    )
    code = fitted.exit_code(False)
    fitted.close()
    with session.watching() as emit:
        proof = certify_model(model, store, config, emit)
    say(
        f"   objective {proof['objective']:.8g}, and no model can have less than {proof['dual_objective']:.8g}:",
        f"   within {proof['relative_gap']:.2e} of the optimum, {proof['certificate']}.",
        "",
        "5. Use: rows that the fit never saw.",
    )
    with session.watching() as emit:
        quality = evaluate(load_model(model), open_store(str(test)), config, emit)
    say(
        f"   accuracy {quality['accuracy']:.4f}, ROC AUC {quality['roc_auc']:.4f} on "
        f"{quality['n_rows']:,} rows (with 3 % wrong labels no accuracy exceeds 0.97).",
        "",
        _next_steps(place, memory, kept),
    )
    return {
        "folder": str(place) if kept else None,
        "data_over_budget": times,
        "status": fitted.status,
        "fit": {**result, "model": str(model) if kept else None},
        "certify": {name: proof[name] for name in _PROVED},
        "evaluate": {name: quality[name] for name in _MEASURED},
    }, code


def _keeping(proofs: list[CertificateMade], emit: Emit) -> Emit:
    """`emit` without certificates, which are collected: the demonstration prints them itself."""

    def keep(event: Event) -> None:
        if isinstance(event, CertificateMade):
            proofs.append(event)
        else:
            emit(event)

    return keep


def _proof_line(event: CertificateMade) -> str:
    return (
        f"   after {event.passes:5.1f} passes, {show_seconds(event.wall_s):>7}: objective "
        f"{event.objective:.6g}, proved within {event.relative_gap:.1e}"
    )


def _next_steps(place: Path, memory: str, kept: bool) -> str:
    if not kept:
        return (
            "The folder was deleted; `bigsvm demo --dir demo` keeps it.  With your own data:\n"
            "   bigsvm ingest data.svm data.zarr\n"
            "   bigsvm plan data.zarr --memory 1GiB\n"
            "   bigsvm fit data.zarr --memory 1GiB"
        )
    return (
        f"Everything is in {place}.  Try\n"
        f"   bigsvm inspect {place}/train.zarr\n"
        f"   bigsvm fit {place}/train.zarr --memory {memory} --tol 1e-4 -o {place}/tight.model\n"
        f"   bigsvm predict {place}/demo.model {place}/test.zarr -o {place}/scores.csv --scores\n"
        f"   bigsvm plan {place}/train.zarr --memory 4MiB"
    )


@contextlib.contextmanager
def _workplace(folder: Path | None, keep: bool) -> Iterator[Path]:
    """The folder to work in: the given one, or a temporary folder that is deleted unless it is kept."""
    try:
        if folder is None:
            place = Path(tempfile.mkdtemp(prefix="bigsvm-demo-"))
        elif folder.exists() and any(folder.iterdir()):
            raise OutputError("the folder is not empty", str(folder), "name another folder")
        else:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        from bigsvm.files.space import cannot_write

        raise cannot_write(folder or Path(tempfile.gettempdir()), error) from error
    if folder is not None:
        yield folder
        return
    try:
        yield place
    finally:
        if not keep:
            shutil.rmtree(place, ignore_errors=True)
