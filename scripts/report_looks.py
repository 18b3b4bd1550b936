#!/usr/bin/env python3
"""Pages of `bigsvm report` in a browser: at phone and desktop width, light and dark, and printed.

A page must not be wider than the window, must ask nobody for anything, must take its background from the scheme, and
must print.  The pictures are for the eye.  Needs playwright, and Chromium: its own, or one that --browser names.

scripts/report_looks.py PAGE.html... --out FOLDER [--browser /usr/bin/chromium]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

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


def main() -> None:
    """Look at each page; exit 1 where one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="+", type=Path, metavar="PAGE.html")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--browser", metavar="PATH")
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    options.out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.browser, args=["--no-sandbox"])
        wrong = [said for page in options.pages for said in looked_at(browser, page, options.out)]
        browser.close()
    sys.stdout.write("".join(f"{said}\n" for said in wrong))
    sys.stdout.write(f"{len(options.pages)} pages, {len(wrong)} things wrong\n")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
