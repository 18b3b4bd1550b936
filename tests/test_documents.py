"""What code and pages cite is in this repository: pages of docs, their sections, and where their links lead."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bigsvm.problem.kernel import KERNELS
from bigsvm.problem.loss import LOSSES
from bigsvm.solvers.registry import SOLVERS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
CODE = ("bigsvm", "scripts", "tests", "pipelines")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "scripts" / "README.md", *sorted(DOCS.rglob("*.md"))]

_NUMBER = r"\d+(?:\.\d+)*"
_NUMBERS = rf"{_NUMBER}(?:(?:, | and | to ){_NUMBER})*(?![\w-])"
_CITED = re.compile(rf"(docs/[\w-]+\.md)`?\)?(?: ({_NUMBERS}))?")
_BETWEEN_PAGES = re.compile(rf"\]\(([\w-]+\.md)\) ({_NUMBERS})")
_HEADING = re.compile(rf"^##+ ({_NUMBER})[ .]", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_NAMES = "algorithms|limits|performance|findings|house|ecosystem|contract"
_FILE = re.compile(r"`([\w./-]*\w\.py)`")
_SCRIPT = re.compile(r"\bscripts/[\w/]+\.py\b")
_OF_OTHERS = {"load.py"}
"""Files that come with data and not with the repository."""
_ELSEWHERE = re.compile(rf"`(?:{_NAMES})`,? \d|\b(?:{_NAMES})\.md\b|\bdesign/|\bthe Notes\b")
"""Pages that people who wrote this had before them and that are not here: to a reader such a citation says nothing."""


def sources() -> Iterator[Path]:
    """Files of code that the repository holds, this one apart: it names what must not be named."""
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".toml", ".md") and path != Path(__file__) and "__pycache__" not in path.parts:
                yield path


def one_line(text: str) -> str:
    """Comments and docstrings may break a citation between two lines."""
    return re.sub(r"\s*\n\s*(?:# )?", " ", text)


def sections_of(page: Path) -> set[str]:
    """Numbers of the headings of a page."""
    return set(_HEADING.findall(page.read_text(encoding="utf-8")))


def wrong_citations(text: str, root: Path = ROOT) -> list[str]:
    """Citations like `docs/mathematics.md 2.1` whose page or section is not there."""
    wrong = []
    for page, numbers in _CITED.findall(one_line(text)):
        if not (root / page).is_file():
            wrong.append(f"{page} is not there")
            continue
        missing = set(re.findall(_NUMBER, numbers)) - sections_of(root / page)
        wrong += [f"{page} has no section {number}" for number in sorted(missing)]
    return wrong


def anchors(page: Path) -> set[str]:
    """What GitHub makes of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_what_code_cites_is_here() -> None:
    found = [f"{path.relative_to(ROOT)}: {fault}" for path in sources() for fault in wrong_citations(path.read_text())]
    assert found == []


def test_the_two_pages_are_cited() -> None:
    """Else the test above may look for citations in a form that nobody uses."""
    cited = [page for path in sources() for page, numbers in _CITED.findall(one_line(path.read_text())) if numbers]
    assert cited.count("docs/mathematics.md") > 30
    assert cited.count("docs/measurements.md") > 5


def test_no_page_is_cited_that_only_its_writers_have() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in (*sources(), *PAGES)
        for match in _ELSEWHERE.finditer(one_line(path.read_text()))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("(docs/mathematics.md 2.1)", ""),
        ("docs/mathematics.md 2.1, 2.2", ""),
        ("`docs/mathematics.md` 2.1 to 2.2", ""),
        ("docs/mathematics.md", ""),
        ("docs/mathematics.md\n    2.3", "docs/mathematics.md has no section 2.3"),
        ("docs/mathematics.md 2.1 and 3", "docs/mathematics.md has no section 3"),
        ("docs/algorithms.md 2.1", "docs/algorithms.md is not there"),
    ],
)
def test_a_wrong_citation_is_seen(text: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "mathematics.md").write_text("# M\n\n## 2 Two\n\n### 2.1 One\n\n### 2.2 Two\n")
    assert wrong_citations(text, tmp_path) == ([fault] if fault else [])


@pytest.mark.parametrize("text", ["see `limits` 9.1", "(`algorithms` 2.4)", "design/ecosystem.md", "as the Notes do"])
def test_a_page_that_is_elsewhere_is_seen(text: str) -> None:
    assert _ELSEWHERE.search(text)


def test_files_that_are_named_are_here() -> None:
    """`compiled/linear/dual_cd.py` in a comment or a page: a file whose path ends so."""
    known = [f"/{path.relative_to(ROOT)}" for path in (*sources(), Path(__file__)) if path.suffix == ".py"]
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in (*sources(), *PAGES)
        for name in _FILE.findall(path.read_text())
        if name not in _OF_OTHERS and not any(one.endswith(f"/{name}") for one in known)
    ]
    assert found == []


def test_commands_that_are_shown_can_be_typed() -> None:
    """`scripts/stress/soak.py --fits 1000`: in pages, docstrings, and files of figures."""
    places = (*sources(), *PAGES, *sorted(DOCS.rglob("*.json")))
    found = {(path, name) for path in places for name in _SCRIPT.findall(path.read_text())}
    assert len({name for _, name in found}) > 20
    wrong = sorted(f"{path.relative_to(ROOT)}: {name}" for path, name in found if not (ROOT / name).is_file())
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link in _LINK.findall(text):
        if "://" in link or link.startswith("mailto:"):
            continue
        name, _, anchor = link.partition("#")
        there = page if not name else page.parent / name
        assert there.exists(), link
        assert not anchor or anchor in anchors(there), link
    for name, numbers in _BETWEEN_PAGES.findall(one_line(text)):
        missing = set(re.findall(_NUMBER, numbers)) - sections_of(page.parent / name)
        assert not missing, f"{name} has no section {missing}"


@pytest.mark.parametrize("name", ["mathematics.md", "measurements.md"])
def test_sections_are_numbered_in_order(name: str) -> None:
    """A citation stays true only if numbers are unique and in their place."""
    numbers = [tuple(map(int, found.split("."))) for found in _HEADING.findall((DOCS / name).read_text())]
    assert numbers == sorted(set(numbers))
    assert [n for n in numbers if len(n) == 1] == [(k + 1,) for k in range(len({n[0] for n in numbers}))]


@pytest.mark.parametrize("name", ["mathematics.md", "measurements.md"])
def test_what_a_page_says_of_itself_is_there(name: str) -> None:
    """Sections of its own that a page names: (4.1), section 3.4, 7.1 with a word before it that says so."""
    text = one_line((DOCS / name).read_text())
    own = sections_of(DOCS / name)
    for number in re.findall(r"\bsections? (\d+(?:\.\d+)?)|\((\d+\.\d+)\)", text):
        said = number[0] or number[1]
        assert said in own, f"{name} has no section {said}"


def test_folders_that_the_page_names_are_there() -> None:
    """`solvers/dcd` and the like, after "Folder:" and "loops in"."""
    text = one_line((DOCS / "mathematics.md").read_text())
    named = set(re.findall(r"(?:\*Folder:\*|loops in|and factored in) `([\w/]+)`", text))
    assert len(named) > 10
    assert [name for name in sorted(named) if not (ROOT / "bigsvm" / name).is_dir()] == []


def test_every_solver_and_every_loss_is_stated() -> None:
    text = (DOCS / "mathematics.md").read_text()
    for name in (*SOLVERS, *LOSSES, *KERNELS):
        assert f"`{name}`" in text, f"docs/mathematics.md does not say what {name!r} is"


def test_the_readme_links_what_code_cites() -> None:
    linked = set(_LINK.findall((ROOT / "README.md").read_text()))
    assert {"docs/mathematics.md", "docs/measurements.md"} <= linked


def test_no_file_is_forgotten() -> None:
    """`sources` sees the files that git knows."""
    done = subprocess.run(["git", "ls-files", *CODE], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    known = {line for line in done.stdout.splitlines() if line.endswith((".py", ".toml", ".md"))}
    seen = {str(path.relative_to(ROOT)) for path in (*sources(), Path(__file__))}
    assert {line for line in known if (ROOT / line).exists()} <= seen
