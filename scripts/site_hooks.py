"""What mkdocs calls while it builds the site: formulas become MathML, which browsers show by themselves.

So the pages carry no script for formulas, and ask nothing of another host.
"""

from __future__ import annotations

import html
import re
from typing import Any

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
_LARGE = re.compile(r"\\[bB]igg?[lr]?(?=\\[lr]Vert)")  # the converter knows no size of this fence
_CODE_IN_CELL = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)


def as_mathml(found: re.Match[str]) -> str:
    """One formula.  Raises what the converter raises: a formula that it cannot read ends the build."""
    from latex2mathml.converter import convert

    text = _LARGE.sub("", html.unescape(found[3]).strip())
    text = text.replace(r"\thinspace", r"\,").replace(r"\lbrace", r"\{").replace(r"\rbrace", r"\}")
    return convert(text, display="block" if found[2] == "[" else "inline")


def on_page_content(page_html: str, **_: Any) -> str:
    """The HTML of a page with its formulas."""
    # In a cell of a table a bar is escaped, in code, too; GitHub takes the escape away again, Python-Markdown does not.
    bare = _CODE_IN_CELL.sub(lambda found: found[0].replace(r"\|", "|"), page_html)
    return _FORMULA.sub(as_mathml, bare)
