"""The curves as a picture."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from srj.errors import RequestError

if TYPE_CHECKING:
    from srj.tuning.tuning import Tuning


_MAKER = "srj tune"
PICTURE_MARKS = (_MAKER.encode(),)
"""What stands near the beginning of pictures of either form."""


def form_of(path: str | Path) -> Literal["png", "svg"]:
    """What a picture of this name is.

    >>> form_of("curves.SVG")
    'svg'

    Raises:
        RequestError: it is neither.
    """
    ending = Path(path).suffix.lower()
    if ending not in (".png", ".svg"):
        raise RequestError(f"expected a file that ends with .png or .svg for the plot, got {str(path)!r}; give it another name")
    return "svg" if ending == ".svg" else "png"


def drawn(tuning: Tuning, form: Literal["png", "svg"] = "png") -> bytes:
    """Miss ratios over the size: usable policies in full lines, the others dashed, the recommendation as a point.

    Raises:
        RequestError: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415  an extra
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ModuleNotFoundError:
        raise RequestError("expected matplotlib for a plot, which is not installed; run: pip install matplotlib") from None
    # The same bytes for the same tuning: no date, no random ids.
    with mpl.rc_context({"svg.hashsalt": "srj", "figure.dpi": 110}):
        figure = Figure(figsize=(8, 5), layout="constrained")
        axes = figure.subplots()
        for number, curve in enumerate(tuning.curves):
            style = "-" if curve.usable else "--"
            width = 1.8 if curve.usable else 0.9
            label = curve.policy if curve.usable else f"{curve.policy} *"
            axes.plot(tuning.sizes, curve.ratios, style, color=f"C{number % 10}", linewidth=width, label=label)
        best = tuning.best
        axes.plot([best.rows], [best.miss_ratio], "k*", markersize=12, label=f"{best.policy}, {best.rows:,} rows")
        axes.set(
            xscale="log",
            xlabel="rows of the cache",
            ylabel="miss ratio, each policy's exact form",
            title=tuning.trace,
            ylim=(0, 1.02),
        )
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small", ncols=2)
        content = io.BytesIO()
        metadata = {"Software": _MAKER} if form == "png" else {"Date": None, "Creator": _MAKER}
        figure.savefig(content, format=form, metadata=metadata)
    return content.getvalue()
