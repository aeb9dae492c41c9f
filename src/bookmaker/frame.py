"""What is drawn around the chapters: README's figure and the pictures of the front page.

`python -m bookmaker frame` writes all anew, with the numbers of `book/_static/welcome/`.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bookmaker.claims import printed_by_chapter, read_claims
from bookmaker.freshness import read_notebook
from bookmaker.pictures import figure_file

# The figure that README.md shows.
COVER = ("33_phase_transitions", "fig-phase-wide")
FOLDER = Path("book") / "_static" / "welcome"


def cover(root: Path) -> tuple[Path, bytes]:
    """Return the file of README's figure and what belongs there."""
    notebook = read_notebook(root / "notebooks" / f"{COVER[0]}.ipynb")
    return root / "book" / "_static" / "cover.svg", figure_file(notebook, COVER[1])


def claim_figures(root: Path, names: tuple[str, ...]) -> dict[str, float]:
    """Return figures of claims, `row.figure`, as the executed chapters print them."""
    printed = printed_by_chapter(root)
    rows = {claim.id: claim.read(printed) for claim in read_claims(root)}
    return {name: float(rows[name.split(".")[0]][name.split(".")[1]]) for name in names}


def welcome_pictures(root: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield the files of the front page's pictures, then their numbers and digests."""
    import matplotlib.pyplot as plt

    from compendium.front.schematics import draw_generator, draw_layer, draw_spins
    from compendium.front.welcome import FIGURES, PICTURES, welcome_numbers
    from spinformer.plot.style import use_style
    from spinformer.plot.vector import figure_svg

    numbers = welcome_numbers(claim_figures(root, FIGURES))
    drawn: dict[str, Callable[[], None]] = {
        name: partial(draw, numbers) for name, draw in PICTURES.items()
    }
    drawn |= {"layer": draw_layer, "spins": draw_spins, "generator": draw_generator}
    digests = {}
    for name, draw in drawn.items():
        with plt.rc_context():
            use_style()
            draw()
            content = figure_svg(plt.gcf()).encode()
            plt.close()
        digests[f"{name}.svg"] = hashlib.sha256(content).hexdigest()
        yield root / FOLDER / f"{name}.svg", content
    stored = {"numbers": numbers, "digests": digests}
    yield root / FOLDER / "pictures.json", (json.dumps(stored, indent=1) + "\n").encode()
