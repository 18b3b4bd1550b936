"""The numbers of a page against the documents that they were read from."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from bigsvm.observe.jsonl import read_events
from bigsvm.report.facts import SHOWS
from looks.real import call


class _Numbers(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, float, str]] = []
        self._source: tuple[str, float] | None = None
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if "data-source" in named:
            self._source = (str(named["data-source"]), json.loads(str(named["data-value"])))

    def handle_data(self, data: str) -> None:
        if self._source is not None:
            self.found.append((*self._source, data))
            self._source = None


def disagreements(page: Path, run: Path, model: Path, data: Path) -> tuple[int, list[str]]:
    """(numbers of a page about a run, what is wrong with them): a value that its document has not, or a text that does
    not show it.  Also a page with hardly any numbers is wrong.

    data : the rows that the page was made with
    """
    known: dict[str, Any] = {"run": json.loads((run / "run.json").read_bytes())}
    known |= {f"event:{k}": event for k, event in enumerate(read_events(run / "events.jsonl"))}
    linear = known["run"]["result"]["kernel"] == "linear"
    inspected = ["inspect", model, *(["--top", "12"] if linear else [])]
    known["model"] = json.loads(call(*inspected, "--json", "--quiet"))["result"]
    known["top"] = known["model"].get("top")
    known["data"] = json.loads(call("evaluate", model, data, "--json", "--quiet"))["result"]
    numbers, wrong = _Numbers(page.read_text(encoding="utf-8")).found, []
    for source, value, text in numbers:
        document, _, path = source.rpartition(":")
        try:
            found = known[document]
            for part in path.split("."):
                found = found[int(part)] if isinstance(found, list) else found[part]
        except (KeyError, IndexError, TypeError, ValueError):
            wrong.append(f"{page.name}: {source} is in no document")
            continue
        if found != value:
            wrong.append(f"{page.name}: {source} is {found}, the page has {value}")
        elif text not in {show(value) for show in SHOWS}:
            wrong.append(f"{page.name}: {source} is {value}, and the page says {text!r}")
    if len(numbers) < 30:
        wrong.append(f"{page.name}: it has {len(numbers)} numbers only")
    return len(numbers), wrong
