"""events.jsonl has the form that its schema says: events of real fits, and every kind with every field."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigsvm import compile_in_child, events
from bigsvm.cli.main import run
from bigsvm.observe.jsonl import event_line, read_events
from bigsvm.observe.schema import event_schema
from bigsvm.run.execute.signals import Stop
from bigsvm.run.execute.traffic import Traffic
from bigsvm.store.ingest.ingest import ingest

KINDS = {kind.__name__: kind for kind in events.Event.__subclasses__()}
PAGE = Path(__file__).parents[2] / "docs" / "events.md"


def validator() -> Any:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(event_schema())
    return jsonschema.Draft202012Validator(event_schema())


def faults(event: dict[str, Any]) -> list[str]:
    """What is wrong with an event, by the part of the schema of its kind."""
    schema = event_schema()
    kind = validator().evolve(schema={"$ref": f"#/$defs/{event['event']}", "$defs": schema["$defs"]})
    return [f"{event['event']}: {error.message}" for error in kind.iter_errors(event)]


def test_every_kind_is_there_with_its_fields_and_no_others() -> None:
    kinds = {name: part for name, part in event_schema()["$defs"].items() if name != "at_s"}
    assert set(kinds) == set(KINDS) == {one["$ref"].rpartition("/")[2] for one in event_schema()["oneOf"]}
    for name, part in kinds.items():
        fields = {"event", "at_s", *(field.name for field in dataclasses.fields(KINDS[name]))}
        assert set(part["properties"]) == set(part["required"]) == fields, name
        assert part["additionalProperties"] is False
        assert part["properties"]["event"] == {"const": name}


def test_the_page_tells_of_every_kind_and_field() -> None:
    parts = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL))
    for name, kind in KINDS.items():
        told = re.findall(r"^\| `(\w+)` \|", parts[name], flags=re.MULTILINE)
        assert told == [field.name for field in dataclasses.fields(kind)], name


def test_traffic_has_the_form() -> None:
    told = {**Traffic().document(), "work_s": 0.25}
    assert faults(json.loads(event_line(events.TrafficCounted(1.5, **told), 0.5))) == []


@pytest.fixture
def store(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(900, 8)).astype(np.float32)
    y = np.where(X[:, 0] + rng.normal(size=900) > 0, 1, -1)
    ingest((X, y), tmp_path / "s.zarr")
    X[:, 7] *= 1e4  # a warning
    ingest((X, y), tmp_path / "badly-scaled.zarr")
    return tmp_path / "s.zarr"


@pytest.mark.usefixtures("streaming")
def test_events_of_real_fits_have_the_form(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Linear, streamed, stopped and taken up again; with a kernel; of several classes; and what goes to a log."""
    streamed = ["fit", str(store), "--loss", "hinge", "--memory", "64MiB", "--tol", "1e-4"]
    assert run([*streamed, "-o", str(tmp_path / "first"), "--log-format", "json"]) == 0  # and all is compiled
    left = 15

    def asked(self: Stop) -> bool:
        nonlocal left
        left -= 1
        self.by = "SIGTERM" if left <= 0 else None
        return left <= 0

    with monkeypatch.context() as patch:
        patch.setattr(Stop, "__bool__", asked)
        assert run([*streamed, "-o", str(tmp_path / "m"), "--quiet"]) == 75
    assert run(["resume", str(tmp_path / "m.run"), "--quiet"]) == 0
    logged = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    badly = str(store.with_name("badly-scaled.zarr"))
    kernel = ["fit", badly, "--kernel", "rbf", "--max-passes", "1", "-o", str(tmp_path / "k"), "--quiet"]
    assert run(kernel) == 4
    found = logged
    for name in ("first", "m", "k"):
        found += read_events(tmp_path / f"{name}.run" / "events.jsonl")
    compiled: list[events.Event] = []
    compile_in_child._compile(lambda: None, compiled.append)
    found += [json.loads(event_line(event, 0.5)) for event in compiled]
    assert [fault for event in found for fault in faults(event)] == []
    assert {event["event"] for event in found} == set(KINDS) - {"TrafficCounted"}  # of clusters: below
    whole = validator()
    assert all(whole.is_valid(event) for event in found)


@pytest.mark.parametrize(
    "event",
    [
        {"event": "Warned", "at_s": 0.0},
        {"event": "Warned", "at_s": 0.0, "message": "x", "more": 1},
        {"event": "Warned", "at_s": -1.0, "message": "x"},
        {"event": "Unheard", "at_s": 0.0},
        {"event": "WorkEnded", "at_s": 0.0, "what": "x", "seconds": None},
        {"event": "BudgetReport", "at_s": 0.0, "limit_bytes": 1, "holders": [["w"]]},
        {"event": "FitEnded", "at_s": 0.0, "status": "error", "result": {}},
    ],
)
def test_what_is_no_event_is_refused(event: dict[str, Any]) -> None:
    assert not validator().is_valid(event)
