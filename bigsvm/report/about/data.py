"""Sections about a model on rows that it was tried on: metrics, confusion matrix, ranking curves, scores, residuals."""

from __future__ import annotations

import math
from typing import Any

from bigsvm.report.draw.ranks import ByScore, calibration, has_both, histograms, precision_recall, roc
from bigsvm.report.facts import Chart, Curve, Fact, Section, Source, Table, Told, count, number, words
from bigsvm.run.apply.evaluate import Residuals, Tally
from bigsvm.units import counted

_CURVES = 10
"""Number of classes whose curves one chart shows."""
_LARGEST_TABLE = 30
_TRIED = "On the rows that it was tried on"  # which may be those of the training: the user names them


def data_sections(store: str, result: dict[str, Any], tally: Tally | Residuals) -> list[Section]:
    """Sections from the result of `evaluate` on a store.

    result : the document of `evaluate`
    """
    source = Source("data", result)
    if isinstance(tally, Residuals):
        return [_regression(store, source, tally)]
    labels = [str(label) for label in result["classes"]]
    matrix = result["confusion_matrix"]
    facts = [*words("tried on", store), *_metrics(source)]
    sections = [Section(_TRIED, facts, tables=_confusion(source, labels, matrix))]
    ranked = []
    for (name, label), ranking in zip(tally.ranked, tally.rankings, strict=True):
        by_score = ByScore(*ranking.by_score())
        if has_both(by_score):
            ranked.append((name, label, by_score))
    if ranked:
        sections.append(_ranking(matrix, ranked))
        sections.append(_scores(ranked, binary=len(tally.rankings) == 1))
    return sections


def kept_back_section(source: Source) -> Section | None:
    """The metrics on the rows that a split kept back, from the record of a run; None without a split."""
    at = "result.held_out."
    return Section("On the rows kept back", _metrics(source, at)) if source.get(f"{at}n_rows") is not None else None


def _metrics(source: Source, at: str = "") -> list[Fact]:
    """The numbers of rows and the metrics that a document has.  at : the path to them"""
    average = source.get(f"{at}average") or "binary"
    of = "" if average == "binary" else f" ({average})"
    rough = " (from binned scores)" if source.get(f"{at}binned") else ""
    weighted = [Told("(weighted)")] if source.get(f"{at}weighted") else []
    return [
        Fact("rows", (source.told(f"{at}n_rows", count), *weighted)),
        *source.fact("accuracy", f"{at}accuracy"),
        *source.fact("balanced accuracy", f"{at}balanced_accuracy"),
        *source.fact(f"F1{of}", f"{at}f1"),
        *source.fact(f"ROC AUC{of}{rough}", f"{at}roc_auc"),
        *source.fact(f"average precision{of}{rough}", f"{at}average_precision"),
        *source.fact("mean squared error", f"{at}mse"),
        *source.fact("mean absolute error", f"{at}mae"),
        *source.fact("R²", f"{at}r2"),
        *source.fact("all labels of a row right", f"{at}subset_accuracy"),
        *source.fact("Hamming loss", f"{at}hamming_loss"),
        *source.fact("F1 of all labels together", f"{at}micro.f1"),
    ]


def _confusion(source: Source, labels: list[str], matrix: list[list[float]]) -> list[Table]:
    """The confusion matrix; empty if it is too large."""
    if len(labels) > _LARGEST_TABLE:
        return []
    rows = [
        [Told(label), *(source.told(f"confusion_matrix.{i}.{j}", number) for j in range(len(labels)))]
        for i, label in enumerate(labels)
    ]
    shades = [[0.0, *(value / (sum(line) or 1.0) for value in line)] for line in matrix]
    caption = "Confusion matrix: a line for each true label, a column for each predicted one"
    return [Table(["true", *labels], rows, caption, shades)]


def _working_point(matrix: list[list[float]], label: int) -> tuple[float, float, float] | None:
    """(false positive rate, recall, precision) of a label as the model decides; None if the rows do not define them."""
    total = sum(map(sum, matrix))
    hits, true, chosen = matrix[label][label], sum(matrix[label]), sum(line[label] for line in matrix)
    if true <= 0 or total - true <= 0 or chosen <= 0:
        return None
    return (chosen - hits) / (total - true), hits / true, hits / chosen


def _ranking(matrix: list[list[float]], ranked: list[tuple[str, int, ByScore]]) -> Section:
    """ROC curve, and precision against recall, with the point at which the model decides."""
    roc_curves, pr_curves, roc_marks, pr_marks, rows = [], [], [], [], []
    for name, label, by_score in ranked[:_CURVES]:
        roc_curves.append(Curve(name, *roc(by_score)))
        pr_curves.append(Curve(name, *precision_recall(by_score)))
        point = _working_point(matrix, label)
        if point is not None:
            false, recall, precision = point
            roc_marks.append((name, false, recall))
            pr_marks.append((name, recall, precision))
            rows.append([Told(name), *(Told(f"{share:.4g}") for share in (recall, precision, false))])
    told = "The dots show the decisions of the model." if rows else ""
    roc_chart = Chart("ROC", "false positive rate", "true positive rate (recall)", roc_curves, marks=roc_marks,
                      unit_square=True, told=told)  # fmt: skip
    pr_chart = Chart("Precision against recall", "recall", "precision", pr_curves, marks=pr_marks, unit_square=True)
    note = "" if len(ranked) <= _CURVES else f"The first {_CURVES} of {len(ranked)} classes."
    head = ["class", "recall", "precision", "false positive rate"]
    tables = [Table(head, rows, "Decisions of the model")] if rows else []
    return Section("Ranking", charts=[roc_chart, pr_chart], tables=tables, note=note)


def _scores(ranked: list[tuple[str, int, ByScore]], binary: bool) -> Section:
    """Histograms of the scores of positive and negative rows, and the share of positive rows by score."""
    charts = []
    for name, _, by_score in ranked[:_CURVES]:
        edges, positive, negative = histograms(by_score)
        others = "the other class" if binary else "all others"
        curves = [Curve(f"rows of {name}", edges, positive), Curve(f"rows of {others}", edges, negative)]
        charts.append(Chart(f"Scores for {name}", f"score for {name}", "share of such rows", curves, kind="bars"))
    if binary:
        name, _, by_score = ranked[0]
        means, shares = calibration(by_score)
        told = "; ".join(f"{mean:.2g}: {100 * share:.3g} %" for mean, share in zip(means, shares, strict=True))
        charts.append(
            Chart(
                "Calibration: share of positive rows by score",
                "mean score of a tenth of the rows",
                f"share of rows that are {name}",
                [Curve(f"share of {name}", means, shares, points=True)],
                told=f"Share of rows of {name} by mean score — {told}.",
            )
        )
    note = "Scores of a support vector machine are distances, not probabilities." if binary else ""
    return Section("Scores", charts=charts, note=note)


def _regression(store: str, source: Source, tally: Residuals) -> Section:
    """Errors, and predicted against true values."""
    facts = [*words("tried on", store), *_metrics(source)]
    pairs = [pair for pair in tally.some if all(map(math.isfinite, pair))]
    charts = []
    if pairs:
        true, given = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        ends = [min(true), max(true)]
        curves = [Curve("rows", true, given, points=True), Curve("equal", ends, ends, faint=True)]
        charts.append(
            Chart(
                f"Predicted against true, {counted(len(pairs), 'row', commas=True)}",
                "true value",
                "predicted value",
                curves,
            )
        )
    return Section(_TRIED, facts, charts=charts)
