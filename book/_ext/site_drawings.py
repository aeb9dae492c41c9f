"""Drawings within the page: its font, its ground, and a second set of colours for the dark theme.

On the dark ground a colour keeps its name: orange stays orange. What has none is turned round in
its lightness, from black, the ink of a figure, to white, and pale tints become dim ones. What lies
on a picture (`as-drawn`, see `spinformer.plot.vector`) stays as it was drawn.
"""

import base64
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
from docutils import nodes
from matplotlib.image import imread, imsave
from sphinx.application import Sphinx

_SVG = re.compile(r"<img (?P<rest>[^>]*?src=\"(?P<source>[^\"]+\.svg)\"[^>]*?)\s*/?>")
_SIZE = re.compile(r' width="([\d.]+)pt" height="([\d.]+)pt"')
# What matplotlib draws behind a figure and behind its axes.
_GROUND = re.compile(r'<path d="[^"]*" style="fill: #ffffff"/>\n?')
_COLOR = re.compile(r"(?<=: )#[0-9a-f]{6}(?=[;\"])")
_IMAGE = re.compile(r"<image\b[^>]*base64,([^\"]+)[^>]*>(?:\s*</image>)?")
_CAPTION = re.compile(r"<figcaption>.*?</figcaption>", re.DOTALL)
_WORD = re.compile(r"\b(black|white|light(?= \w)|dark|pale)\b(?![^<]*>)")
_DARK_WORD = {"black": "white", "white": "black", "light": "dark", "dark": "light", "pale": "dim"}
# Below this span of its red, green and blue a colour has no name, above this one it has.
_NAMELESS = 0.2
_NAMED = 0.3
# Lightness of the ink and of the ground on the dark theme, and the least of a line on it; lines as
# light as `_FREE` stay, those between keep their order.
_INK = 0.91
_DARK = 0.07
_SEEN = 0.28
_FREE = 0.36


def on_dark(colors: np.ndarray) -> np.ndarray:
    """Return colours (..., 3), of 255, as they are on the dark ground.

    >>> on_dark(np.array([[0, 0, 0], [230, 159, 0]])).tolist()
    [[232, 232, 232], [230, 159, 0]]
    """
    share = np.asarray(colors, dtype=float) / 255
    light = (share @ [0.3, 0.6, 0.1])[..., None]
    named = (np.ptp(share, axis=-1, keepdims=True) - _NAMELESS) / (_NAMED - _NAMELESS)
    kept = np.where(light < _FREE, _SEEN + light * (1 - _SEEN / _FREE), light)
    turned = _INK + (_DARK - _INK) * light
    weight = np.clip(named, 0, 1)
    changed = share + weight * kept + (1 - weight) * turned - light
    return np.round(255 * np.clip(changed, 0, 1)).astype(int)


def _dark_name(color: str) -> str:
    return "#" + bytes(on_dark(np.array(list(bytes.fromhex(color[1:])))).tolist()).hex()


def two_grounds(text: str) -> tuple[str, set[str]]:
    """Return an SVG without ground whose colours the theme may change, and those it changes."""
    text = _IMAGE.sub(_two_pictures, _GROUND.sub("", text))
    changed = {color for color in set(_COLOR.findall(text)) if _dark_name(color) != color}
    for color in changed:
        text = re.sub(rf"(?<=: ){color}(?=[;\"])", f"var(--on{color[1:]},{color})", text)
    return text, changed


def _two_pictures(match: re.Match[str]) -> str:
    """Return dots on paper twice, the second for the dark ground; any other picture as it is."""
    pixels = np.round(255 * imread(io.BytesIO(base64.b64decode(match[1])), format="png"))
    dark = np.dstack([on_dark(pixels[..., :3]), pixels[..., 3]])
    seen = pixels[..., 3] > 0
    paper = ~seen | (pixels[..., :3].min(axis=-1) > 250)
    # Dots leave more of it free than a photograph in black and white.
    if paper.mean() < 0.55 or np.abs(dark - pixels)[seen].max(initial=0) < 20:
        return match[0]
    stream = io.BytesIO()
    imsave(stream, dark.astype(np.uint8), format="png")
    copy = match[0].replace(match[1], base64.b64encode(stream.getvalue()).decode())
    light = match[0].replace("<image", '<image class="on-light"', 1)
    return light + re.sub(r' id="[^"]*"', "", copy.replace("<image", '<image class="on-dark"', 1))


def dark_rule(colors: set[str], svg: str = 'html[data-theme="dark"] svg.figure') -> str:
    """Return the style sheet that gives these colours their values on the dark ground."""
    dark = "".join(f"--on{name[1:]}:{_dark_name(name)};" for name in sorted(colors))
    drawn = re.sub(":.*?;", ":initial;", dark)
    return f"<style>@media screen{{{svg},{svg} .ink{{{dark}}}{svg} .as-drawn{{{drawn}}}}}</style>"


def dark_file(text: str) -> str:
    """Return an SVG as it is drawn on the dark ground, for a page that shows it as a file."""
    text, changed = two_grounds(text)
    ink = "svg,.as-drawn .ink{fill:#e8e8e8}.as-drawn{fill:#000}.on-light{display:none}"
    style = dark_rule(changed, "svg") + f"<style>{ink}</style>"
    return re.sub(r"<svg\b[^>]*>", lambda m: m[0] + style, text, count=1)


def two_words(caption: str) -> str:
    """Return a caption whose words for what has no colour follow the theme.

    >>> two_words("the limit (black)")[-47:]
    'black</span><span class="on-dark">white</span>)'
    """
    span = '<span class="on-{}">{}</span>'
    return _WORD.sub(
        lambda m: span.format("light", m[0]) + span.format("dark", _DARK_WORD[m[0]]), caption
    )


def set_drawings(
    app: Sphinx, _page: str, _template: str, context: dict[str, Any], _doctree: nodes.document
) -> None:
    """Put drawings into the page itself, with what the dark theme needs.

    Those on cards stay files, one for each ground, since a page of many would become heavy.
    """
    sources = {name: path for path, name in getattr(app.builder, "images", {}).items()}
    colors: set[str] = set()

    def drawn(match: re.Match[str]) -> str:
        name = Path(match["source"]).name
        if name not in sources:
            return match[0]
        text = Path(app.srcdir, sources[name]).read_text(encoding="utf-8")
        # Points are four thirds of a pixel.
        size = _SIZE.search(text)
        width, height = (round(float(n) * 4 / 3) for n in size.groups()) if size else (0, 0)
        if "card-picture" in match[0]:
            path = Path(app.outdir, "_images", f"dark-{name}")
            path.parent.mkdir(exist_ok=True)
            path.write_text(dark_file(text), encoding="utf-8")
            shown = f'<img {match["rest"]} width="{width}" height="{height}" loading="lazy">'
            light = shown.replace("card-picture", "card-picture dark-light on-light")
            return light + light.replace("on-light", "on-dark").replace("_images/", "_images/dark-")
        text = _SIZE.sub(f' width="{width}" height="{height}"', text, count=1)
        text, changed = two_grounds(text)
        colors.update(changed)
        alt = re.search(r'alt="([^"]*)"', match[0])
        label = f' role="img" aria-label="{alt[1]}"' if alt else ""
        return text.replace("<svg", f'<svg class="figure"{label}', 1)

    figures = context.get("body", "").split("</figure>")
    for number, figure in enumerate(figures):
        figures[number] = _SVG.sub(drawn, figure)
        if "<svg" in figures[number] and 'class="as-drawn"' not in figures[number]:
            # On a picture black stays black.
            figures[number] = _CAPTION.sub(lambda m: two_words(m[0]), figures[number])
    # What docutils calls a list must have items; a bibliography's entries are something else.
    body = "</figure>".join(figures)
    context["body"] = body.replace('<div role="list" class="cit', '<div class="cit')
    if colors:
        context["metatags"] = context.get("metatags", "") + dark_rule(colors)


def setup(app: Sphinx) -> None:
    """Register the hook."""
    app.connect("html-page-context", set_drawings)
