"""The report on whatever is at a path: a run, a model or a registry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bigsvm.errors import MissingInput, UsageError
from bigsvm.model.linear_model import Model, load_model
from bigsvm.observe.run_files import REPORT, is_run
from bigsvm.report.about.model import features_section, model_of_run, model_report
from bigsvm.report.about.registry import is_registry, registry_report
from bigsvm.report.about.run import run_report
from bigsvm.report.facts import Report, Told
from bigsvm.report.runs import read_run


def is_model(path: Path) -> bool:
    """Whether a folder is a model."""
    return (path / "model.json").is_file()


def place_of(path: Path) -> Path:
    """The default path of the page about `path`: inside a run, otherwise in the current folder."""
    if is_run(path) and not is_model(path):
        return path / REPORT
    return Path(f"{path.resolve().name}.html")


def make_report(path: Path, with_model: bool = False) -> tuple[Report, Model | None]:
    """(report, model).  A run with a model, and a model with its run beside it, are reported together.

    with_model : the caller needs the model

    Raises
    ------
    MissingInput : there is neither a run, a model nor a registry; or no model although it is needed.
    UsageError : a model is needed, but it is a registry.  DataError : it is damaged.
    """
    if is_model(path):
        return _of_model(path)
    if is_registry(path):
        if with_model:
            raise UsageError(
                "a registry has many models", str(path), f"name one of them for --data: {path / 'current'}"
            )
        return registry_report(path), None
    if not is_run(path):
        kinds = "a run is a folder with run.json, a model one with model.json, a registry one with versions"
        hint = f"{kinds}; bigsvm plot shows a search"
        raise MissingInput("neither a run, a model nor a registry", str(path), hint)
    return _of_run(path, with_model)


def _of_run(path: Path, with_model: bool) -> tuple[Report, Model | None]:
    run = read_run(path)
    report = run_report(run)
    where = model_of_run(run.record)
    if where is None:
        if with_model:
            raise MissingInput("the model of this run is missing, or is another one", str(run.record.get("model")))
        return report, None
    model = load_model(where)
    _add_features(report, model)
    return report, model


def _of_model(path: Path) -> tuple[Report, Model]:
    model = load_model(path)
    report = model_report(path, model)
    _add_features(report, model)
    beside = path.parent / f"{path.name}.run"
    if is_run(beside):
        run = read_run(beside)
        where = model_of_run(run.record)
        if where is not None and where.resolve() == path.resolve():
            told = run_report(run)
            report.sections.extend(section for section in told.sections if section.title != "The certificate")
    return report, model


def _add_features(report: Report, model: Model) -> None:
    section = features_section(model)
    if section is not None:
        report.sections.insert(min(2, len(report.sections)), section)


def figures(report: Report) -> dict[str, float]:
    """Every number in a report, by its source."""
    return {told.source: told.value for told in _all(report) if told.value is not None}


def _all(report: Report) -> Iterator[Told]:
    yield from report.lead
    for section in report.sections:
        for fact in section.facts:
            yield from fact.values
        for bar in section.bars:
            yield from (part.told for part in bar.parts)
        for table in section.tables:
            for row in table.rows:
                yield from row
