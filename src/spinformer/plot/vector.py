"""Figures as SVG: sharp on every screen, small, and the same bytes wherever they are drawn.

Letters stay letters, in the font of the page that shows them; what is dense becomes a picture
within the figure. Noted for a page that is narrow or dark: where the figure may be cut into columns
(`data-columns`), and what lies on a picture and keeps its colours (`as-drawn`), without the axes
around it (`ink`).
"""

import hashlib
import io
import re
import warnings

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import Collection, PathCollection, QuadMesh
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.spines import Spine
from matplotlib.text import Text

# More points, or corners of polygons, than this are a picture.
_DENSE = 1500
# Dots per inch of what is a picture: two for each pixel of an ordinary screen.
_RESOLUTION = 192
_FONTS = "-apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"
# Room is kept for letters as large as those of DejaVu Sans: this is their height in its size.
_HEIGHT = 0.547
_TALL = 1.7

_CONTENT = (AxesImage, Collection, Line2D, Patch)

_HEAD = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_META = re.compile(r"\s*<metadata>.*?</metadata>|<!--.*?-->", re.DOTALL)
_NUMBERS = re.compile(r' (?:d|x|y|x1|x2|y1|y2|width|height|transform|points|viewBox)="[^"]*"')
_DECIMALS = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
_COMMANDS = re.compile(r"\s*([MLCQz])\s*|\s+(?=\")")
_ID = re.compile(r' id="([^"]+)"')
_FAMILY = re.compile(r"font-family: 'DejaVu Sans'[^;\"]*(; )?")
_SIZE = re.compile(r"font-size: ([\d.]+)px; font-family: 'STIXSize[^;\"]*")
_FORMULA = re.compile(r"<text>\s*(?:<tspan .*?</tspan>\s*)+</text>", re.DOTALL)
_UPRIGHT = re.compile(r' transform="rotate\(-?0 [^)]*\)"')
_GLYPH = re.compile(
    r'<tspan x="(?P<x>[^"]*)" y="(?P<y>[^"]*)" style="(?P<style>[^"]*)">(?P<text>[^<]*)</tspan>\s*'
)


def figure_svg(figure: Figure) -> str:
    """Vector graphic (SVG) of a figure, on a white background.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The figure.

    Returns
    -------
    str
        Text of the SVG file.

    Examples
    --------
    >>> figure = Figure(figsize=(1, 1))
    >>> line = figure.add_subplot().plot([0, 1], [0, 1])
    >>> figure_svg(figure)[:4]
    '<svg'
    """
    for axes in figure.axes:
        _mark(axes, figure)
    stream = io.StringIO()
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "spinformer"}):
        figure.savefig(
            stream, format="svg", dpi=_RESOLUTION, bbox_inches="tight", metadata={"Date": None}
        )
    # Saving has laid the figure out.
    return _tidied(stream.getvalue(), _columns(figure))


def _mark(axes: Axes, figure: Figure) -> None:
    with warnings.catch_warnings(action="ignore"):  # matplotlib below 3.11 leaves contours.
        for artist in axes.get_children():
            if _points(artist) > _DENSE:
                artist.set_rasterized(True)
    pictures = [c for c in axes.collections if isinstance(c, QuadMesh) or _filled(c)]
    if not (pictures or any(not _on_white(image) for image in axes.images)):
        return
    figure.draw_without_rendering()
    axes.set_gid("as-drawn")
    for artist in axes.get_children():
        inside = isinstance(artist, _CONTENT) and not isinstance(artist, Spine)
        if isinstance(artist, (Text, Legend)):
            inside = axes.bbox.overlaps(artist.get_window_extent())
        if not inside:
            artist.set_gid("ink")


def _on_white(image: AxesImage) -> bool:
    colors = np.asarray(image.to_rgba(np.ma.asarray(image.get_array())))
    return bool(np.median(colors[..., :3].min(axis=-1)) > 0.98)


def _filled(artist: Artist) -> bool:
    return isinstance(artist, ContourSet) and artist.filled


def _points(artist: Artist) -> int:
    """Return how many points or corners an artist draws; a mesh is a picture from the start."""
    if isinstance(artist, Line2D):
        marked = artist.get_marker() not in (None, "None", "none", "", " ")
        # Lines are simplified, markers are not.
        return len(np.asarray(artist.get_xydata())) // (1 if marked else 4)
    if isinstance(artist, QuadMesh):
        return _DENSE + 1
    if isinstance(artist, PathCollection) and (many := len(np.asarray(artist.get_offsets()))) > 1:
        return many
    if isinstance(artist, Collection):
        return sum(len(np.asarray(path.vertices)) for path in artist.get_paths()) // 4
    return 0


def _columns(figure: Figure) -> list[float]:
    """Return where a figure may be cut into columns, as shares of its width."""
    shown = [(axes, axes.get_tightbbox()) for axes in figure.axes]
    boxes = [box for _, box in shown if box is not None]
    words = [artist.get_window_extent() for artist in (*figure.texts, *figure.legends)]
    boxes += [box for box in words if box.width > 0]
    left = min(box.x0 for box in boxes)
    right = max(box.x1 for box in boxes)
    found = []
    for axes, box in shown:
        if box is None or axes.get_label() == "<colorbar>" or box.x0 - left < 0.15 * (right - left):
            continue
        if not any(other.x0 < box.x0 - 1 and other.x1 > box.x0 + 1 for other in boxes):
            found.append(round((box.x0 - left) / (right - left) - 0.005, 3))
    return sorted(set(found))


def _tidied(text: str, columns: list[float]) -> str:
    """Return an SVG without what no page needs, its numbers to a hundredth of a point."""
    text = _META.sub("", _HEAD.sub("", text))
    text = _NUMBERS.sub(lambda m: _COMMANDS.sub(r"\1", _DECIMALS.sub(_rounded, m[0])), text)
    text = _UPRIGHT.sub("", _FORMULA.sub(_words, text))
    text = _SIZE.sub(_larger, _FAMILY.sub("", text))
    text = re.sub(r' id="(as-drawn|ink)"', r' class="\1"', text)
    used = [name for name in _ID.findall(text) if f"#{name}" in text]
    text = _ID.sub(lambda m: m[0] if m[1] in used else "", text)
    # Two figures may stand on one page.
    begin = "f" + hashlib.sha256(text.encode()).hexdigest()[:8]
    for number, name in enumerate(dict.fromkeys(used)):
        text = re.sub(rf'(?<=[#"]){re.escape(name)}(?=[")])', f"{begin}-{number}", text)
    text = re.sub(r"\n\s*", "\n", text)
    given = f' data-columns="{" ".join(map(str, columns))}"' if columns else ""
    head = f'<svg font-family="{_FONTS}" style="font-size-adjust: {_HEIGHT}"{given}'
    return text.replace("<svg", head, 1).strip() + "\n"


def _rounded(match: re.Match[str]) -> str:
    return f"{float(match[0]):.2f}".rstrip("0").rstrip(".")


def _larger(match: re.Match[str]) -> str:
    # The tall roots and brackets of a font that browsers do not have are small in it.
    return f"font-size: {float(match[1]) * _TALL:.3g}px"


def _words(match: re.Match[str]) -> str:
    """Return a formula, which matplotlib places letter by letter, with its words in one piece."""
    runs: list[tuple[str, str, str, str]] = []
    for glyph in sorted(_GLYPH.finditer(match[0]), key=lambda glyph: float(glyph["x"])):
        x, y, style, letters = glyph.group("x", "y", "style", "text")
        if runs and runs[-1][1:3] == (y, style):
            runs[-1] = (*runs[-1][:3], runs[-1][3] + letters)
        else:
            runs.append((x, y, style, letters))
    spans = []
    for (x, y, style, letters), after in zip(runs, [*runs[1:], None], strict=True):
        # Words before a symbol keep its place, whatever the font.
        fits = after and after[1] == y and len(letters) > 1
        length = f' textLength="{float(after[0]) - float(x):.4g}"' if after and fits else ""
        spans.append(f'<tspan x="{x}" y="{y}"{length} style="{style}">{letters}</tspan>')
    return f'<text xml:space="preserve">{"".join(spans)}</text>'
