"""Drawings within the page: its font, its ground, and a second set of colours for the dark theme.

On the dark ground a colour keeps its name: orange stays orange. What has none is turned round in
its lightness, from black, the ink of a figure, to white, and pale tints become dim ones. What lies
on a picture (`as-drawn`, see `spinformer.plot.vector`) stays as it was drawn.
"""

from __future__ import annotations

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
_ALT = re.compile(r'alt="([^"]*)"')
_SIZE = re.compile(r' width="([\d.]+)pt" height="([\d.]+)pt"')
# What matplotlib draws behind a figure and behind its axes.
_GROUND = re.compile(r'<path d="[^"]*" style="fill: #ffffff"/>\n?')
_COLOR = re.compile(r"(?<=: )#[0-9a-f]{6}(?=[;\"])")
_GROUP = re.compile(r"<g\b[^>]*>|</g>|<image\b[^>]*>(?:\s*</image>)?")
_EMBEDDED = re.compile(r"(?<=base64,)[^\"]+")
_CAPTION = re.compile(r"<figcaption>.*?</figcaption>", re.DOTALL)
_WORD = re.compile(r"\b(black|white|light(?= \w)|dark|pale)\b(?![^<]*>)")
_DARK_WORD = {"black": "white", "white": "black", "light": "dark", "dark": "light", "pale": "dim"}

# sRGB to OKLab: cones of the eye, then lightness and two hues.
_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
# Below this distance from grey a colour has no name, above this one it has.
_NAMELESS, _NAMED = 0.06, 0.11
# Lightness of the ink and of the ground on the dark theme, and the least of a line on it.
_INK, _DARK, _SEEN = 0.93, 0.18, 0.45


def on_dark(colors: np.ndarray) -> np.ndarray:
    """Return colours (..., 3), of 255, as they are on the dark ground.

    >>> on_dark(np.array([[0, 0, 0], [230, 159, 0]])).tolist()
    [[232, 232, 232], [230, 159, 0]]
    """
    share = np.asarray(colors, dtype=float) / 255
    light = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    lab = np.cbrt(light @ _CONES.T) @ _LAB.T
    lightness = lab[..., 0]
    named = (np.hypot(lab[..., 1], lab[..., 2]) - _NAMELESS) / (_NAMED - _NAMELESS)
    # Colours of a scale keep their order.
    middle = 0.55
    kept = np.where(lightness < middle, _SEEN + lightness * (1 - _SEEN / middle), lightness)
    turned = _INK + (_DARK - _INK) * lightness
    weight = np.clip(named, 0, 1)
    changed = lab.copy()
    changed[..., 0] = weight * kept + (1 - weight) * turned
    light = (changed @ np.linalg.inv(_LAB).T) ** 3 @ np.linalg.inv(_CONES).T
    light = np.clip(light, 0, 1)
    share = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    return np.round(255 * share).astype(int)


def _dark_name(color: str) -> str:
    dark = on_dark(np.array([int(color[n : n + 2], 16) for n in (1, 3, 5)]))
    return "#" + "".join(f"{part:02x}" for part in dark)


def two_grounds(text: str) -> tuple[str, set[str]]:
    """Return an SVG whose colours the theme may change, and those that it changes.

    Pictures within it that look otherwise on the dark ground get a copy for it.
    """
    depth, drawn_from, parts, end = 0, 0, [], 0
    for match in _GROUP.finditer(text):
        if match[0].startswith("<g"):
            depth += 1
            if 'class="as-drawn"' in match[0]:
                drawn_from = depth
        elif match[0] == "</g>":
            drawn_from = 0 if depth == drawn_from else drawn_from
            depth -= 1
        elif not drawn_from and (dark := _dark_picture(match[0])):
            light = match[0].replace("<image", '<image class="on-light"', 1)
            parts += [text[end : match.start()], light, dark]
            end = match.end()
    text = "".join([*parts, text[end:]])
    changed = {color for color in set(_COLOR.findall(text)) if _dark_name(color) != color}
    return _COLOR.sub(lambda m: f"var(--on{m[0][1:]},{m[0]})" if m[0] in changed else m[0], text), (
        changed
    )


def _dark_picture(image: str) -> str:
    """Return an embedded picture for the dark ground, nothing if it is the same there."""
    data = _EMBEDDED.search(image)
    if data is None:
        return ""
    drawn = imread(io.BytesIO(base64.b64decode(data[0])), format="png")
    pixels = np.round(255 * drawn).astype(int)
    if pixels.ndim != 3 or pixels.shape[2] != 4:
        return ""
    shown, where = np.unique(pixels[..., :3].reshape(-1, 3), axis=0, return_inverse=True)
    dark = np.dstack([on_dark(shown)[where].reshape((*pixels.shape[:2], 3)), pixels[..., 3]])
    seen = pixels[..., 3] > 0
    if np.abs(dark[seen] - pixels[seen]).max(initial=0) < 20:
        return ""
    stream = io.BytesIO()
    imsave(stream, dark.astype(np.uint8), format="png")
    copy = image.replace(data[0], base64.b64encode(stream.getvalue()).decode())
    return re.sub(r' id="[^"]*"', "", copy.replace("<image", '<image class="on-dark"', 1))


def dark_rule(colors: set[str], svg: str = 'html[data-theme="dark"] svg.figure') -> str:
    """Return the style sheet that gives these colours their values on the dark ground."""
    dark = "".join(f"--on{name[1:]}:{_dark_name(name)};" for name in sorted(colors))
    drawn = re.sub(":.*?;", ":initial;", dark)
    return f"<style>@media screen{{{svg},{svg} .ink{{{dark}}}{svg} .as-drawn{{{drawn}}}}}</style>"


def dark_file(text: str) -> str:
    """Return an SVG as it is drawn on the dark ground, for a page that shows it as a file."""
    text, changed = two_grounds(_GROUND.sub("", text))
    ink = "svg,.as-drawn .ink{fill:#e8e8e8}.as-drawn{fill:#000}.on-light{display:none}"
    style = dark_rule(changed, "svg") + f"<style>{ink}</style>"
    return re.sub(r"<svg\b[^>]*>", lambda m: m[0] + style, text, count=1)


def two_words(caption: str) -> str:
    """Return a caption whose words for what has no colour follow the theme.

    >>> two_words("the limit (black)")[-48:]
    'black</span><span class="on-dark">white</span>)'
    """
    return _WORD.sub(
        lambda m: (
            f'<span class="on-light">{m[0]}</span><span class="on-dark">{_DARK_WORD[m[0]]}</span>'
        ),
        caption,
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
        source = sources.get(Path(match["source"]).name)
        if source is None:
            return match[0]
        text = Path(app.srcdir, source).read_text(encoding="utf-8")
        size = _SIZE.search(text)
        # Points are four thirds of a pixel.
        width, height = (round(float(n) * 4 / 3) for n in size.groups()) if size else (0, 0)
        shown = f'<img {match["rest"]} width="{width}" height="{height}" loading="lazy">'
        if "card-picture" in match[0]:
            path = Path(app.outdir, "_images", "dark-" + Path(match["source"]).name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(dark_file(text), encoding="utf-8")
            light = shown.replace("card-picture", "card-picture dark-light on-light")
            return light + light.replace("on-light", "on-dark").replace("_images/", "_images/dark-")
        if not size:
            return shown
        text = _GROUND.sub("", _SIZE.sub(f' width="{width}" height="{height}"', text, count=1))
        text, changed = two_grounds(text)
        colors.update(changed)
        alt = _ALT.search(match[0])
        label = f' role="img" aria-label="{alt[1]}"' if alt else ""
        return text.replace("<svg", f'<svg class="figure"{label}', 1)

    if "body" not in context:
        return
    figures = context["body"].split("</figure>")
    for number, figure in enumerate(figures):
        figures[number] = _SVG.sub(drawn, figure)
        if "<svg" in figures[number] and 'class="as-drawn"' not in figures[number]:
            # On a picture black stays black.
            figures[number] = _CAPTION.sub(lambda m: two_words(m[0]), figures[number])
    context["body"] = "</figure>".join(figures)
    if colors:
        context["metatags"] = context.get("metatags", "") + dark_rule(colors)


def setup_drawings(app: Sphinx) -> None:
    """Register the hook."""
    app.connect("html-page-context", set_drawings)
