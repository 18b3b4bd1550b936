"""Sections about a saved model: its problem, its certificate, and the features with the largest weights."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from bigsvm.files.atomic import read_bytes
from bigsvm.model.linear_model import Model
from bigsvm.report.about.sentences import proof_sentence, tone
from bigsvm.report.facts import Report, Section, Source, Table, Told, count, exact, joined, number, small, words
from bigsvm.run.apply.inspection import inspect_model, strongest

_TOP, _TOP_OF_MANY, _MANY = 12, 6, 3
"""Number of features shown for each of two classes, and of more classes; and how many classes are "many"."""
_CLASSES_SHOWN = 20


def model_report(path: Path, model: Model) -> Report:
    """The report on a model alone, without any rows."""
    about = inspect_model(path, loaded=model)
    source = Source("model", about)
    certificate = about["certificate"]
    gaps = certificate.get("relative_gap") or []
    worst = max(range(len(gaps)), key=lambda m: gaps[m]) if gaps else 0
    gap = source.told(f"certificate.relative_gap.{worst}", small) if gaps else None
    status = str(about["status"] or "ok")
    tol = source.told("tol", small) if about["tol"] is not None else None
    lead = proof_sentence(status, gap, tol, certificate.get("kind"), {})
    report = Report("model", str(path), f"The model {path.name}", tuple(lead), tone(status))
    report.sections.append(_problem(source))
    report.sections.append(_certificate(source, _names(model)))
    return report


def _problem(source: Source) -> Section:
    about: dict[str, Any] = source.document
    problem = about["problem"]
    kernel = problem.get("kernel")
    facts = [
        *words("status", about["status"]),
        *words("classes", "none: it gives values" if about["regression"] else joined(about["classes"])),
        *source.fact("features", "n_features", count),
        *source.fact("trained on rows", "n_samples" if about.get("n_trained") is None else "n_trained", count),
        *source.fact("rows held out for the probabilities", "n_held_out", count),
        *words("loss", problem.get("loss")),
        *source.fact("C", "problem.C.0"),
        *words("bias", problem.get("bias")),
        *words("kernel", kernel.get("name") if isinstance(kernel, dict) else kernel),
        *source.fact("gamma", "kernel.gamma"),
        *words("solver", about["plan"].get("solver")),
        *source.fact("weights that are not zero", "n_nonzero", count),
        *source.fact("norm of the weights", "norm", number),
        *source.fact("support vectors", "n_support_vectors", count),
        *words("content of the store", about["content_fingerprint"]),
        *words("dual point", "saved" if about["has_alpha"] else "not saved: certify gives a weaker bound"),
    ]
    return Section("What it is", facts)


def _names(model: Model) -> list[str]:
    """The classes that each model distinguishes."""
    if model.regression:
        return ["values"]
    classes = model.classes.tolist()
    named = zip(model.positive.tolist(), model.negative.tolist(), strict=True)
    return [f"{classes[p]}" + (f" against {classes[n]}" if n >= 0 else "") for p, n in named]


def _certificate(source: Source, names: list[str]) -> Section:
    certificate = source.document["certificate"]
    rows = []
    for m in range(len(certificate.get("relative_gap") or [])):
        at = f"certificate.{{}}.{m}"
        rows.append(
            [
                Told(names[m] if m < len(names) else str(m)),
                source.told(at.format("objective"), exact),
                source.told(at.format("dual_objective"), exact),
                source.told(at.format("relative_gap"), small),
                source.told(at.format("n_support"), count),
            ]
        )
    head = ["class", "objective", "dual value", "relative gap", "support vectors"]
    facts = words("certificate", certificate.get("kind"))
    return Section("The certificate", facts, tables=[Table(head, rows)] if rows else [])


def features_section(model: Model) -> Section | None:
    """The features with the largest weights for each class; None for a kernel model, which has no weights."""
    if model.weights is None:
        return None
    top = strongest(model, _TOP if model.n_models < _MANY else _TOP_OF_MANY)
    source = Source("top", top)
    tables = []
    for k, entry in enumerate(top[:_CLASSES_SHOWN]):
        against = f" against {entry['against']}" if "against" in entry else ""
        caption = "Largest weights" if entry["class"] is None else f"For {entry['class']}{against}"
        most = max((abs(item["weight"]) for item in entry["features"]), default=1.0)
        rows = [
            [Told(str(item["feature"])), source.told(f"{k}.features.{i}.weight", number)]
            for i, item in enumerate(entry["features"])
        ]
        lengths = [[0.0, abs(item["weight"]) / most] for item in entry["features"]]
        tables.append(Table(["feature", "weight"], rows or [[Told("no feature"), Told("-")]], caption, lengths))
    named = bool(model.about.get("rows", {}).get("features"))
    note = "" if named else "The store has no feature names, so features are given by their numbers, from 0."
    if len(top) > _CLASSES_SHOWN:
        note += f" The first {_CLASSES_SHOWN} of {len(top)} models; bigsvm inspect --top shows all."
    if model.about.get("rows", {}).get("scale"):
        note += " Weights refer to scaled features."
    return Section("Strongest features", tables=tables, note=note.strip())


def model_of_run(record: dict[str, Any]) -> Path | None:
    """The folder of the model that a run wrote, if that model is still there."""
    where = record.get("model")
    if not where:
        return None
    path = Path(str(where))
    try:
        digest = hashlib.sha256(read_bytes(path / "model.json")).hexdigest()
    except OSError:
        return None
    return path if digest == record.get("model_digest") else None
