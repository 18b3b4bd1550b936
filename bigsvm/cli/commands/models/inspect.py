"""bigsvm inspect: describes a store, a model or a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bigsvm.cli import text
from bigsvm.cli.command import bigsvm_command
from bigsvm.cli.options import add, store_options, take_rows
from bigsvm.cli.record import EVENTS, RUN
from bigsvm.cli.session import Session
from bigsvm.cli.types import Source
from bigsvm.errors import UsageError
from bigsvm.store.remote.names import is_remote
from bigsvm.units import show_bytes

_SHOWN_BY = {"history.jsonl": "history", "search.json": "plot", "curve.json": "plot"}
"""File of a registry, of a search or of a learning curve -> the command that shows it."""


@bigsvm_command(
    help="Describe PATH.  A store: shape, entries, labels, dtypes, chunks, fingerprints and what a fit "
    "would cost.  A model: its problem and its proof.  A run: how it went."
)
@click.argument("path", type=Source())
@click.option("--top", type=click.IntRange(1), metavar="N", help="For a model: the N strongest features of each class.")
@add(store_options)
def command(
    session: Session,
    path: str,
    top: int | None,
    label: str | None,
    weight: str | None,
    empty_chunks: Any,
    **options: Any,
) -> int:
    folder = Path(path)
    if (folder / "model.json").exists():
        from bigsvm.run.apply.inspection import inspect_model

        result = inspect_model(folder, top)
        return session.finish(result, _model_text(result), only_told=True)
    if top is not None and (folder.exists() or is_remote(path)):  # missing paths are reported below
        raise UsageError("--top is for models", path, "leave it out")
    if (folder / EVENTS).exists() or (folder / RUN).exists():
        result = _run(folder)
        return session.finish(result, _run_text(result), only_told=True)
    for mark, shows in _SHOWN_BY.items():
        if (folder / mark).exists():
            raise UsageError("neither a store, a model nor a run", path, f"show it with bigsvm {shows} {path}")

    from bigsvm.run.apply.inspection import inspect_store
    from bigsvm.store.formats.opener import open_store

    store = open_store(path, label=label, weight=weight, empty_chunks=empty_chunks, **take_rows(options))
    session.warn_of(store)
    result = inspect_store(store)
    if is_remote(path):
        result["path"] = path  # not the path of the local copy
    if result["scale_warning"]:
        session.warn(result["scale_warning"])
    return session.finish(result, _store_text(result), only_told=True)


def _run(folder: Path) -> dict[str, Any]:
    """A run, from its record alone."""
    from bigsvm.observe.jsonl import read_events

    events = list(read_events(folder / EVENTS)) if (folder / EVENTS).exists() else []
    named: dict[str, dict[str, Any]] = {event["event"]: event for event in events}
    last = {name: value for name, value in named.get("CertificateMade", {}).items() if name != "event"}
    started = named.get("FitStarted", {})
    ended = named.get("FitEnded", {})
    return {
        "kind": "run",
        "path": str(folder),
        "status": ended.get("status", "unfinished"),
        "n_events": len(events),
        "certificates": [
            {name: event[name] for name in ("passes", "epochs", "objective", "relative_gap", "wall_s")}
            for event in events
            if event["event"] == "CertificateMade"
        ],
        "last_certificate": last or None,
        "config": started.get("config"),
        "plan": started.get("plan"),
        "store_fingerprint": started.get("store_fingerprint"),
        "versions": started.get("versions"),
        "result": ended.get("result"),
    }


def _run_text(result: dict[str, Any]) -> str:
    last = result["last_certificate"]
    config = result["config"] or {}
    lines = [
        ("status", result["status"]),
        ("problem", f"{config.get('loss')}, C = {config.get('C')}" if config else None),
        ("proofs", text.count(len(result["certificates"]))),
        ("relative gap", text.number(last["relative_gap"], 3) if last else None),
        ("objective", text.number(last["objective"], 10) if last else None),
        ("versions", ", ".join(f"{name} {value}" for name, value in (result["versions"] or {}).items())),
    ]
    return f"{text.label(result['path'])}: a run\n" + text.rows(lines)


def _model_text(result: dict[str, Any]) -> str:
    problem, certificate = result["problem"], result["certificate"]
    gaps = certificate.get("relative_gap") or []
    lines = [
        ("classes", "none: it predicts values" if result["regression"] else text.listed(result["classes"])),
        ("label column", result["label_column"]),
        ("weight column", result["weight_column"]),
        ("features", text.count(result["n_features"])),
        *_of_kernel(result),
        ("problem", f"{problem.get('loss')}, C = {problem.get('C', ['?'])[0]}, bias {problem.get('bias')}"),
        ("relative gap", f"{text.number(max(gaps), 3)} ({certificate.get('kind')})" if gaps else None),
        ("trained on", _trained_on(result)),
        ("dual point", _dual_point(result)),
        ("size", show_bytes(result["bytes"])),
    ]
    top = "".join(_top_text(entry) for entry in result.get("top", []))
    return f"{text.label(result['path'])}: a model\n" + text.rows(lines) + top


def _dual_point(result: dict[str, Any]) -> str | None:
    """Whether alpha was saved; None for an imported model, which cannot have it."""
    if "imported" in result:
        return None
    return "saved" if result["has_alpha"] else "not saved: certify gives a weaker bound"


def _trained_on(result: dict[str, Any]) -> str:
    """The training rows; for an imported model, its origin."""
    imported = result.get("imported")
    if imported:
        return (
            f"rows unknown, by {imported.get('program')}: imported from {imported.get('file')}, without a certificate"
        )
    rows = text.counted(result["n_samples"], "row")
    if "n_trained" in result:
        held = f"{text.counted(result['n_held_out'], 'other')} held out for the probabilities"
        rows = f"{text.count(result['n_trained'])} of {rows}, the {held}"
    of = [f"a split of {result['split']:g}"] if "split" in result else []
    if (chosen := text.chosen(result)) is not None:
        of.append(chosen)
    if of:
        rows += f" ({' of '.join(of)})"
    return f"{rows}, content {result['content_fingerprint']}"


def _top_text(entry: dict[str, Any]) -> str:
    """The features with the largest weights for a class."""
    against = f" against {text.label(entry['against'])}" if "against" in entry else ""
    head = "largest weights" if entry["class"] is None else f"for {text.label(entry['class'])}{against}"
    lines = [f"    {text.number(item['weight'], 4):>12}  {text.label(item['feature'])}" for item in entry["features"]]
    return "\n".join([f"\n  {head}", *(lines or ["    no feature"])])


def _of_kernel(result: dict[str, Any]) -> list[tuple[str, str]]:
    """Kernel and support vectors; for a linear model its weights."""
    if "kernel" not in result:
        weights = f"{text.count(result['n_nonzero'])} of them not zero, norm {text.number(result['norm'])}"
        return [("weights", weights)]
    stored = "as kernel values of the training rows"
    if result["support_layout"]:
        stored = f"{result['support_layout']}, {show_bytes(result['support_bytes'])}"
    return [
        ("kernel", text.kernel(result["kernel"])),
        ("support vectors", f"{text.count(result['n_support_vectors'])} ({stored})"),
    ]


def _store_text(result: dict[str, Any]) -> str:
    cost = result["cost"]
    counts = result["class_counts"]
    if result["classes"] is None:
        labels = "numbers, for regression"
    elif counts is None:
        labels = text.listed(result["classes"])
    else:
        labels = text.listed(f"{label}: {n:,}" for label, n in counts.items())
    lines = [
        ("rows", text.count(result["n_samples"])),
        ("features", text.count(result["n_features"])),
        (
            "entries",
            f"{text.count(result['nnz'])} ({text.number(result['density'], 3)} of all), {result['layout']}",
        ),
        ("types", f"values {result['dtype']}, indices {result['index_dtype']}"),
        ("labels", labels),
        ("weights", "yes" if result["has_weights"] else "none"),
        ("split", None if result["split"] is None else f"fits train on {result['split']:g} of the rows"),
        ("size", _size_text(result)),
        *(("empty", f"{what}: they hold the fill value") for what in result["empty_chunks"].values()),
        ("chunks", f"{show_bytes(result['chunk_bytes'])} decoded" if result["chunk_bytes"] else None),
        ("store", result["store_fingerprint"]),
        ("content", result["content_fingerprint"]),
        ("a fit", None if cost is None else _cost_text(cost)),
        ("", None if cost is None else _least_text(result)),
    ]
    return f"{text.label(result['path'])}: a store\n" + text.rows(lines)


def _size_text(result: dict[str, Any]) -> str:
    decoded, stored = f"{show_bytes(result['data_bytes'])} decoded", result["stored_bytes"]
    return decoded if stored is None else f"{decoded}, {show_bytes(stored)} on disk"


def _least_text(result: dict[str, Any]) -> str:
    least = f"at least --memory {show_bytes(result['cost']['min_memory_bytes'])}"
    return least if result["split"] is None else f"{least}; this is for all rows; bigsvm plan considers the split"


_MODES = {
    "resident": "rows kept in memory",
    "staged": "rows copied to scratch",
    "streamed": "rows read from the store in every pass",
    "refused": "refused",
}


def _cost_text(cost: dict[str, Any]) -> str:
    return (
        f"{_MODES[cost['mode']]} by default, {show_bytes(cost['budget_bytes'])} of memory, "
        f"{show_bytes(cost['scratch_bytes'])} of scratch"
    )
