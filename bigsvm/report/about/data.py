"""Sections about a model on other rows: metrics, confusion matrix, ranking curves, scores, residuals."""

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


def data_sections(store: str, result: dict[str, Any], tally: Tally | Residuals) -> list[Section]:
    """Sections from the result of `evaluate` on a store.

    result : the document of `evaluate`
    """
    source = Source("data", result)
    if isinstance(tally, Residuals):
        return [_regression(store, source, tally)]
    labels = [str(label) for label in result["classes"]]
    matrix = result["confusion_matrix"]
    average = "" if result["average"] == "binary" else f" ({result['average']})"
    rough = " (from binned scores)" if result["binned"] else ""
    facts = [
        *words("tried on", store),
        Fact("rows", (source.told("n_rows", count), *([Told("(weighted)")] if result["weighted"] else []))),
        *source.fact("accuracy", "accuracy"),
        *source.fact("balanced accuracy", "balanced_accuracy"),
        *source.fact(f"F1{average}", "f1"),
        *source.fact(f"ROC AUC{average}{rough}", "roc_auc"),
        *source.fact(f"average precision{average}{rough}", "average_precision"),
    ]
    sections = [Section("On other rows", facts, tables=_confusion(source, labels, matrix))]
    ranked = []
    for (name, label), ranking in zip(tally.ranked, tally.rankings, strict=True):
        by_score = ByScore(*ranking.by_score())
        if has_both(by_score):
            ranked.append((name, label, by_score))
    if ranked:
        sections.append(_ranking(matrix, ranked))
        sections.append(_scores(ranked, binary=len(tally.rankings) == 1))
    return sections


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
    facts = [
        *words("tried on", store),
        *source.fact("rows", "n_rows", count),
        *source.fact("mean squared error", "mse"),
        *source.fact("mean absolute error", "mae"),
        *source.fact("R²", "r2"),
    ]
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
    return Section("On other rows", facts, charts=charts)
