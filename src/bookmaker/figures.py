"""Figures that a cell hands over by name: what may be handed over, and how it is written.

A figure is a number, a text, a truth value, an estimate with its error (`{"value", "error"}`), a
list or a dictionary of these, or a table (`{"columns", "rows"}`). Numbers are kept with six
significant digits, and what is smaller than rounding errors are is zero: another processor, which
adds in another order, then hands over the same.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

# The kind of output under which a notebook holds them; no program shows it.
FIGURES = "application/vnd.spinformer.figures+json"
DIGITS = 6
# Deviations below this one are equality up to rounding.
ROUNDING = 1e-12

_SMALL = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
_SMALL += ["eleven", "twelve"]
_POWER = re.compile(r"e([-+]?)0*(\d+)$")
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def plain(name: str, value: Any) -> Any:
    """Return a figure in the form in which a notebook holds it.

    NumPy's and torch's numbers and arrays become Python's, an object with `value` and `error` a
    dictionary of the two. Raises ValueError for a number that is not finite and TypeError for what
    is no figure; the message names it.

    >>> plain("slope", 2 / 3)
    0.666667
    >>> plain("deviation", 3e-16)
    0.0
    """
    if hasattr(value, "value") and hasattr(value, "error"):
        both = (plain(name, value.value), plain(f"{name}.error", value.error))
        return _estimates(*both)
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(f"{name}[{key}]", entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(f"{name}[{place}]", entry) for place, entry in enumerate(value)]
    if isinstance(value, bool | int | str):
        return value
    if not isinstance(value, float):
        raise TypeError(
            f"figure {name} must be a number, a text, an estimate, or a list, dictionary or table "
            f"of these, got {type(value).__name__}: {value!r:.60}"
        )
    if not math.isfinite(value):
        raise ValueError(f"figure {name} must be finite, got {value}: hand over the words for it")
    return 0.0 if abs(value) < ROUNDING else float(f"{value:.{DIGITS}g}")


def _estimates(value: Any, error: Any) -> Any:
    if isinstance(value, list):
        return [_estimates(*both) for both in zip(value, error, strict=True)]
    return {"value": value, "error": error}


def is_table(figure: Any) -> bool:
    """Return whether a figure is a table."""
    return isinstance(figure, dict) and figure.keys() == {"columns", "rows"}


def is_estimate(figure: Any) -> bool:
    """Return whether a figure is a number with its error."""
    return isinstance(figure, dict) and figure.keys() == {"value", "error"}


def written(figure: Any, form: str = "", *, formula: bool = False) -> str:
    """Return a figure as prose or, with `formula`, as mathematics shows it.

    `form` is a format of Python, or `words` for a small integer in letters (`Words` at the
    beginning of a sentence), or `equality` for a deviation that may be nothing but rounding. An
    estimate without `form` has two digits of its error; words stay as they are. Raises ValueError
    for a form that does not fit.

    >>> written(-0.0614, ".2f"), written(-0.0614, ".2f", formula=True), written(0.931, ".0%")
    ('−0.06', '-0.06', '93 %')
    >>> written({"value": 0.2953, "error": 0.0131}), written(3, "words"), written(0.0, "equality")
    ('0.295 ± 0.013', 'three', 'below 10⁻¹²')
    """
    if is_estimate(figure):
        form = form or _decimals(figure["error"])
        value = written(figure["value"], form, formula=formula)
        error = written(figure["error"], form, formula=formula)
        return rf"{value} \pm {error}" if formula else f"{value} ± {error}"
    if isinstance(figure, list | dict):
        raise ValueError("is several figures: name one of them")
    if isinstance(figure, bool):
        figure = "yes" if figure else "no"
    if form in ("words", "Words"):
        number = int(figure)
        word = _SMALL[number] if 0 <= number < len(_SMALL) else str(number)
        return word.capitalize() if form == "Words" else word
    if form == "equality":
        if float(figure) < ROUNDING:
            return r"\text{below }10^{-12}" if formula else "below 10⁻¹²"
        text = f"{float(figure):.1e}"
    elif isinstance(figure, str) and not (form and _is_number(figure)):
        # Words in the place of a number, too.
        text = figure
    else:
        figure = float(figure) if isinstance(figure, str) else figure
        text = format(figure, form or ("g" if isinstance(figure, float) else ""))
    return _signs(text, formula=formula)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _decimals(error: float) -> str:
    """Return the format that shows two digits of an error."""
    return f".{max(0, 1 - math.floor(math.log10(error)))}f" if error else ".3g"


def _signs(text: str, *, formula: bool) -> str:
    """Return a number with the signs that a keyboard lacks; other text as it is."""
    bare = text.strip().rstrip("%").replace(",", "")
    if not _is_number(bare):
        return text
    if float(bare) == 0:
        text = text.replace("-", "")
    if power := _POWER.search(text):
        exponent = f"{power[1].replace('+', '')}{power[2]}"
        before = text[: power.start()]
        if formula:
            text = rf"{before}\times 10^{{{exponent}}}"
        else:
            text = f"{before} × 10{exponent.translate(_RAISED)}"
    if formula:
        return text.replace("%", r"\,\%")
    return text.replace("%", " %").replace("-", "−")
