"""A tuning as one page, pictures inside."""

from __future__ import annotations

import base64
from html import escape
from typing import TYPE_CHECKING

from srj.tuning.picture import drawn
from srj.tuning.report import CURVES_TITLE, facts, form_of, ranked

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from srj.tuning.tuning import Tuning

_STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:64em;margin:2em auto;padding:0 1em}img{max-width:100%}table{border-collapse:collapse}"
    "td,th{border:1px solid #ccc;padding:.2em .6em;text-align:right}td:first-child,th:first-child{text-align:left}"
    ".facts td{text-align:left}pre{background:#f4f4f4;padding:1em;overflow:auto}"
)


PAGE_MARK = '<!doctype html><html lang="en"><meta charset="utf-8"><title>srj tune: '
"""What a page begins with."""


def page(tuning: Tuning) -> str:
    """The page.

    Raises:
        RequestError: matplotlib is not installed.
    """
    picture = base64.b64encode(drawn(tuning)).decode()
    facts_rows = "".join(f"<tr><td><b>{escape(label)}</b></td><td>{escape(text)}</td></tr>" for label, text in facts(tuning))
    parts = [
        f"{PAGE_MARK}{escape(tuning.trace)}</title>",
        f"<style>{_STYLE}</style><h1>{escape(tuning.trace)}</h1><table class=facts>{facts_rows}</table>",
        f"<h2>srj.toml</h2><pre>{escape(tuning.toml())}</pre>",
        f'<h2>{CURVES_TITLE}</h2><img alt="miss ratio over the cache\'s rows" src="data:image/png;base64,{picture}">',
    ]
    rows = (
        [f"{curve.policy}{'' if curve.usable else ' *'}", *(f"{ratio:.3f}" for ratio in curve.ratios)] for curve in tuning.curves
    )
    parts.append(_table(["policy", *(f"{size:,}" for size in tuning.sizes)], rows))
    if not all(curve.usable for curve in tuning.curves):
        parts.append("<p>* in its exact form only: shown to compare, not recommended</p>")
    trials = (
        [
            trial.policy,
            f"{trial.rows:,}",
            f"{trial.misses:,.0f}",
            f"{float(tuning.prices.cost(trial.misses, trial.rows)):,.4g}",
            form_of(trial),
        ]
        for trial in ranked(tuning)
    )
    parts += ["<h2>Simulations behind the choice</h2>", _table(["policy", "rows", "misses", "cost in s", ""], trials)]
    parts += [f"<p>{escape(note)}</p>" for note in tuning.notes]
    return "\n".join([*parts, "</html>", ""])


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in headings)
    body = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
