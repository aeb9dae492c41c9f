"""What the tests of the exercises share: their numbers, read from the chapters' texts.

`@answers("10.2")` names the exercise, chapter and number, that a test computes.
"""

import re
from functools import cache
from pathlib import Path

import pytest

CHAPTERS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.md"))
DONE: dict[str, str] = {}


def answers(*names):
    """Enter the test under the exercises that it computes."""

    def mark(function):
        assert not DONE.keys() & set(names)
        DONE.update(dict.fromkeys(names, function.__name__))
        return function

    return mark


def number(name):
    """Chapter number of a file, "11b" of "11b_load_and_temperature"."""
    return name.split("_")[0]


@cache
def exercises(chapter):
    """The section of the chapter, questions and answers."""
    (path,) = (path for path in CHAPTERS if number(path.stem) == chapter)
    found = re.search(r"^## Exercises\n(.*?)(?=^## |\Z)", path.read_text(), re.M | re.S)
    return found[1] if found else ""


def said(chapter, pattern, count=1):
    """The numbers in the groups of `pattern`, in the chapter's exercises and their answers."""
    (found,) = re.findall(pattern, exercises(chapter))
    texts = [found] if isinstance(found, str) else found
    assert len(texts) == count
    values = [float(re.sub(r"\{,\}", "", text)) for text in texts]
    return values[0] if count == 1 else values


def near(value, digits):
    """Equal as printed with so many digits behind the point."""
    return pytest.approx(value, abs=0.5 * 10.0**-digits + 1e-12)
