"""The page about a run or a model: its numbers are the record's, it asks nobody for anything, nasty names are text."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bigsvm.cli.main import run
from bigsvm.observe.jsonl import read_events
from bigsvm.report.draw.plots import inline_svg
from bigsvm.report.facts import SHOWS, Chart, Curve
from tests.report.conftest import Page, at

pytest.importorskip("matplotlib")
NAMES = ("two", "three", "rbf", "values")


def made(*args: object) -> str:
    """The page that a call writes."""
    out = Path(str(args[-1]))
    assert run(["report", *map(str, args[:-1]), "-o", str(out), "--quiet"]) == 0
    return out.read_text(encoding="utf-8")


def documents(fits: Path, name: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What the numbers of a page are numbers of."""
    told: dict[str, Any] = {"run": json.loads((fits / f"{name}.run" / "run.json").read_text())}
    told |= {f"event:{k}": event for k, event in enumerate(read_events(fits / f"{name}.run" / "events.jsonl"))}
    for key, command in {"model": ["inspect", fits / name, "--top", "12"], "data": ["evaluate", fits / name]}.items():
        if key == "model" and name == "rbf":
            command = command[:2]
        if key == "data":
            command = [*command, fits / f"{name}-other.zarr"]
        capsys.readouterr()
        assert run([*map(str, command), "--json", "--quiet"]) == 0
        told[key] = json.loads(capsys.readouterr().out)["result"]
    told["top"] = told["model"].get("top")
    return told


def test_a_path_that_is_not_utf8_is_told_with_a_replacement(fits: Path, tmp_path: Path) -> None:
    """The page could not be encoded, and the exit code of a fit that had converged was 1."""
    odd = os.fsdecode(b"caf\xe9")
    for end in ("", ".run"):
        shutil.copytree(fits / f"two{end}", tmp_path / f"{odd}{end}")
    for end in ("", ".run"):
        assert "caf?" in made(tmp_path / f"{odd}{end}", tmp_path / f"page{end}.html")
    store, model = tmp_path / f"{odd}.zarr", tmp_path / f"{odd}.model"
    shutil.copytree(fits / "two.zarr", store)
    assert run(["fit", str(store), "-o", str(model), "--report", str(tmp_path / f"{odd}.html"), "--quiet"]) == 0
    assert (tmp_path / f"{odd}.html").stat().st_size > 0


def test_a_home_that_cannot_be_written_is_not_told_of(fits: Path, tmp_path: Path) -> None:
    program = "import sys; from bigsvm.cli.main import main; main(sys.argv[1:])"
    asked = ["report", str(fits / "two.run"), "-o", "page.html", "--quiet"]
    home = {name: value for name, value in os.environ.items() if name not in ("MPLCONFIGDIR", "XDG_CONFIG_HOME")}
    done = subprocess.run(
        [sys.executable, "-c", program, *asked],
        cwd=tmp_path, env={**home, "HOME": "/dev/null", "TMPDIR": str(tmp_path)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize("name", NAMES)
def test_every_number_of_a_page_is_the_records(
    name: str, fits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = documents(fits, name, capsys)
    data = ["--data", fits / f"{name}-other.zarr"]
    pages = [Page(made(fits / f"{name}.run", *data, tmp_path / "run.html"))]
    pages.append(Page(made(fits / name, *data, tmp_path / "model.html")))
    for page in pages:
        assert len(page.numbers) > 30
        for source, value, text in page.numbers:
            document, _, path = source.rpartition(":")
            found = at(known[document], path)
            assert found == value, source
            assert text in {show(found) for show in SHOWS}, source
    told = {source for page in pages for source, _, _ in page.numbers}
    wanted = ["run:result.relative_gap", "run:result.seconds.total", "run:result.memory.budget_bytes",
              "run:result.passes", "run:result.bytes_read", "model:certificate.relative_gap.0"]  # fmt: skip
    wanted += ["data:r2", "data:mse"] if name == "values" else ["data:accuracy", "data:confusion_matrix.0.1"]
    wanted += ["run:result.kernel_rows.computed"] if name == "rbf" else ["top:0.features.0.weight"]
    assert set(wanted) <= told


@pytest.mark.parametrize("name", ["two", "three"])
def test_a_page_asks_nobody_for_anything(name: str, fits: Path, tmp_path: Path) -> None:
    html = made(fits / name, "--data", fits / f"{name}-other.zarr", tmp_path / "p.html")
    page = Page(html)
    assert "script" not in page.tags
    assert "link" not in page.tags
    assert page.asked  # the drawings' own marks
    assert all(link.startswith("#") for link in page.asked)
    without_namespaces = re.sub(r'xmlns(:\w+)?="[^"]*"', "", html)
    assert "://" not in without_namespaces
    assert "@import" not in html
    assert all(found.startswith("#") for found in re.findall(r"url\(([^)]*)\)", html))
    assert len(page.ids) == len(set(page.ids)) > 10  # of several drawings in one page
    assert {link[1:] for link in page.asked} <= set(page.ids)


def test_drawings_take_their_colours_from_the_page(fits: Path, tmp_path: Path) -> None:
    html = made(fits / "two", "--data", fits / "two-other.zarr", tmp_path / "p.html")
    drawings = re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL)
    assert len(drawings) == 6  # ROC, precision, scores, calibration, gap by passes and by seconds
    style = html[html.index("<style>") : html.index("</style>")]
    assert "prefers-color-scheme: dark" in style
    assert "@media print" in style
    for drawing in drawings:
        assert "#01fe" not in drawing
        assert not set(re.findall(r"#[0-9a-f]{6}", drawing)) - {"#000000"}, "a colour of its own"
        used = set(re.findall(r"var\((--[\w-]+)\)", drawing))
        assert used
        assert all(f"{name}:" in style for name in used)


def test_the_sentence_says_what_was_proved(fits: Path, tmp_path: Path) -> None:
    gap = json.loads((fits / "two.run" / "run.json").read_text())["result"]["relative_gap"]
    text = Page(made(fits / "two.run", tmp_path / "p.html")).text
    assert f"is proved to be within a share of {gap:.3g}" in text


def test_names_are_text_and_nothing_else(fits: Path, tmp_path: Path) -> None:
    nasty = tmp_path / "<script>alert(1)</script>&$x^2$.run"
    shutil.copytree(fits / "two.run", nasty)
    record = json.loads((nasty / "run.json").read_text())
    record.update(store='x"><img src=http://a.b/c>', host="<b>")
    (nasty / "run.json").write_text(json.dumps(record))
    with open(nasty / "events.jsonl", "a") as file:
        file.write(json.dumps({"event": "Warned", "at_s": 9.0, "message": "</ul><script>1</script>"}) + "\n")
    page = Page(made(nasty, tmp_path / "p.html"))
    assert not {"script", "img", "b"} & set(page.tags)
    assert "</ul><script>1</script>" in page.text
    assert '"><img src=http:' in page.text


def test_a_page_of_a_model_tells_of_its_run_only_where_it_is_its_own(fits: Path, tmp_path: Path) -> None:
    assert "Where the time went" in made(fits / "two", tmp_path / "a.html")
    shutil.copytree(fits / "two", tmp_path / "two")
    assert "Where the time went" not in made(tmp_path / "two", tmp_path / "b.html")
    shutil.copytree(fits / "values.run", tmp_path / "two.run")  # another model's
    assert "Where the time went" not in made(tmp_path / "two", tmp_path / "c.html")


def test_outputs(fits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(fits / "two.run", tmp_path / "r")
    assert run(["report", str(tmp_path / "r")]) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'r' / 'report.html'}: ")
    assert run(["report", str(tmp_path / "r")]) == 73
    assert run(["report", str(tmp_path / "r"), "--overwrite", "--json"]) == 0
    capsys.readouterr()
    assert run(["report", str(tmp_path / "r"), "-o", "-"]) == 0
    assert capsys.readouterr().out == (tmp_path / "r" / "report.html").read_text()
    assert run(["report", str(tmp_path / "r"), "-o", "-", "--json"]) == 2
    assert run(["report", str(tmp_path / "r"), "-o", str(tmp_path / "t.txt"), "--text"]) == 2
    assert run(["report", str(tmp_path / "nothing")]) == 66
    assert run(["report", str(tmp_path)]) == 66
    assert run(["report", str(fits / "two.zarr"), "-o", str(tmp_path / "s.html")]) == 66


def test_a_run_without_its_model_cannot_be_tried(
    fits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(fits / "two.run", tmp_path / "r")
    record = json.loads((tmp_path / "r" / "run.json").read_text())
    (tmp_path / "r" / "run.json").write_text(json.dumps({**record, "model": str(fits / "values")}))
    data = ["--data", str(fits / "two-other.zarr")]
    assert run(["report", str(tmp_path / "r"), *data, "-o", str(tmp_path / "p.html")]) == 66
    assert "the model of this run is missing, or is another one" in capsys.readouterr().err
    assert not (tmp_path / "p.html").exists()


def test_a_fit_writes_its_page(fits: Path, tmp_path: Path) -> None:
    command = ["fit", str(fits / "values.zarr"), "--loss", "squared_epsilon_insensitive", "--solver", "newton",
               "-o", str(tmp_path / "m"), "--quiet"]  # fmt: skip
    assert run([*command, "--report", str(tmp_path / "m" / "p.html")]) == 73  # in the model
    (tmp_path / "there.html").touch()
    assert run([*command, "--report", str(tmp_path / "there.html")]) == 73
    assert not (tmp_path / "m").exists()  # before any work
    assert run([*command, "--report", str(tmp_path / "m.run" / "report.html")]) == 0
    page = Page((tmp_path / "m.run" / "report.html").read_text())
    record = json.loads((tmp_path / "m.run" / "run.json").read_text())
    assert ("run:result.objective", record["result"]["objective"]) in {(s, v) for s, v, _ in page.numbers}
    # What is over is not done again, and a page that is asked for later is made.
    assert run([*command, "--resume", "--report", str(tmp_path / "new" / "later.html")]) == 0
    assert (tmp_path / "new" / "later.html").exists()


def test_classes_of_any_name_are_in_the_legend() -> None:
    """matplotlib leaves out names that begin with an underscore, and warns of letters that its own font lacks."""
    names = ("_under", "犬", "$x$", "a&b")
    chart = Chart("T", "x", "y", [Curve(name, [0.0, 1.0], [0.0, 1.0]) for name in names])
    drawn = inline_svg(chart, 0)
    for name in ("_under", "犬", "$x$", "a&amp;b"):
        assert re.search(rf"<text[^>]*>\u200b?{re.escape(name)}</text>", drawn), name


def test_without_matplotlib_one_line_names_the_extra(fits: Path, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from bigsvm.cli.main import run\n"
        f"sys.exit(run(['report', {str(fits / 'two.run')!r}, '-o', {str(tmp_path / 'p.html')!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "install bigsvm[report]" in done.stderr


@pytest.mark.parametrize(("gaps", "labels"), [([9e-4, 4.2e-4], {"1e-4", "1e-3"}), ([5e-2, 2e-4], {"1e-3", "1e-2"})])
def test_a_gap_can_be_read_off(gaps: list[float], labels: set[str]) -> None:
    """Powers of ten alone have labels: where there would be fewer than two, the axis is longer."""
    chart = Chart("gap", "passes", "gap", [Curve("proved", list(range(1, len(gaps) + 1)), gaps)], log_y=True)
    assert labels <= set(re.findall(r">(1e-\d)<", inline_svg(chart, 1)))


def test_how_rows_were_read_is_told(fits: Path, tmp_path: Path) -> None:
    shutil.copytree(fits / "two.run", tmp_path / "a.run")
    record = json.loads((tmp_path / "a.run" / "run.json").read_text())
    record["job"]["rows"] = {"scale": "maxabs", "matrix": "layers/raw"}
    (tmp_path / "a.run" / "run.json").write_text(json.dumps(record))
    assert "read as scale maxabs, matrix layers/raw" in Page(made(tmp_path / "a.run", tmp_path / "p.html")).text
    assert "read as" not in Page(made(fits / "two.run", tmp_path / "q.html")).text
