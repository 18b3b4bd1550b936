#!/usr/bin/env python3
"""Pages of `bigsvm report` in a browser: at phone and desktop width, light and dark, and printed.

A page must not be wider than the window, must ask nobody for anything, must take its background from the scheme, and
must print.  The pictures are for the eye.  Needs playwright, and Chromium: the one that --browser names, one on the
PATH, or playwright's own.

scripts/report_looks.py PAGE.html... --out FOLDER [--browser /usr/bin/chromium]
scripts/report_looks.py --real --out FOLDER
    fits of real rows (linear, ten classes, rbf, values) have their pages made, and every number held against the run
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("BIGSVM_TEST_DATA", ROOT.parent / "shared" / "data"))

WIDTHS = {"phone": 390, "desktop": 1280}
SCHEMES = ("light", "dark")


def looked_at(browser: object, page: Path, out: Path) -> list[str]:
    """What is wrong with a page; pictures and a PDF of it are in `out` afterwards."""
    wrong, grounds = [], {}
    for name, width in WIDTHS.items():
        for scheme in SCHEMES:
            view = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[attr-defined]
            asked: list[str] = []
            view.on("request", lambda request, asked=asked: asked.append(request.url))
            view.goto(page.absolute().as_uri())
            widest = view.evaluate("document.documentElement.scrollWidth")
            if widest > width:
                wrong.append(f"{page.name}, {name}: {widest} pixels wide, the window {width}")
            if len(asked) != 1:
                wrong.append(f"{page.name}: it asks for {asked[1:]}")
            grounds[scheme] = view.evaluate(
                "getComputedStyle(document.documentElement).backgroundColor"
            ) + view.evaluate("getComputedStyle(document.body).backgroundColor")
            view.screenshot(path=out / f"{page.stem}-{name}-{scheme}.png", full_page=True)
            if (name, scheme) == ("desktop", "light"):
                view.pdf(path=out / f"{page.stem}.pdf", format="A4")
                if not (out / f"{page.stem}.pdf").read_bytes().startswith(b"%PDF"):
                    wrong.append(f"{page.name}: it cannot be printed")
            view.close()
    if grounds["light"] == grounds["dark"]:
        wrong.append(f"{page.name}: light and dark have one background, {grounds['light']}")
    return wrong


def real_pages(data: Path, out: Path, kinds: list[str]) -> tuple[list[Path], list[str]]:
    """(pages of fits of real rows, what is wrong with their numbers)."""
    sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]
    from looks.numbers import disagreements
    from looks.real import pages_of

    pages, wrong = pages_of(data, out, kinds), []
    for kind, page in pages.items():
        model = out / f"{kind}.model"
        n, found = disagreements(page, out / f"{kind}.model.run", model, out / f"{kind}-test.zarr")
        sys.stdout.write(f"{page.name}: {n} numbers, {len(found)} wrong\n")
        wrong += found
    return list(pages.values()), wrong


def chromium(asked: str | None) -> str | None:
    """The browser to start; None for playwright's own."""
    return asked or shutil.which("chromium") or shutil.which("google-chrome")


def main() -> None:
    """Look at each page; exit 1 where one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE.html")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--browser", metavar="PATH")
    parser.add_argument("--real", nargs="*", metavar="KIND", help="linear, digits, rbf, values; all by default")
    parser.add_argument(
        "--data", type=Path, default=DATA, metavar="FOLDER", help="where the real sets are, with load.py"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    pages, wrong = list(options.pages), []
    if options.real is not None:
        made, wrong = real_pages(options.data, options.out, options.real or ["linear", "digits", "rbf", "values"])
        pages += made
    if not pages:
        parser.error("name a page, or say --real")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(options.browser), args=["--no-sandbox"])
        wrong += [said for page in pages for said in looked_at(browser, page, options.out)]
        browser.close()
    sys.stdout.write("".join(f"{said}\n" for said in wrong))
    sys.stdout.write(f"{len(pages)} pages, {len(wrong)} things wrong\n")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
