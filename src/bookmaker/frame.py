"""What stands around the chapters: README's figure, verdicts, pictures of the front page.

`python -m bookmaker frame` writes all anew: `book/verdicts/partN.md`, which the pages of
the parts include, from `book/claims.yml`; and `book/_static/welcome/`, from the figures of claims.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator
from pathlib import Path

from bookmaker.claims import VERDICTS, printed_by_chapter, printed_for, read_claims
from bookmaker.figures import figure_file
from bookmaker.freshness import read_notebook

# The figure that README.md shows.
COVER = ("33_phase_transitions", "fig-phase-wide")
PARTS = {"A": "part1", "B": "part2", "C": "part3"}
FOLDER = Path("book") / "_static" / "welcome"
# The picture that a link to the book shows elsewhere.
CARD = "motions"


def cover(root: Path) -> tuple[Path, bytes]:
    """Return the file of README's figure and what belongs there."""
    notebook = read_notebook(root / "notebooks" / f"{COVER[0]}.ipynb")
    return root / "book" / "_static" / "cover.svg", figure_file(notebook, COVER[1])


def verdicts(root: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield for each part the file of its verdicts and what belongs there."""
    claims = read_claims(root)
    for letter, name in PARTS.items():
        mine = [claim for claim in claims if claim.id.startswith(letter)]
        lines = []
        for verdict in VERDICTS:
            rows = [claim for claim in mine if claim.verdict == verdict]
            if not rows:
                continue
            words = (
                "Holds, if a condition is met" if verdict == "holds if" else verdict.capitalize()
            )
            lines += [f"**{words}** ({len(rows)} of {len(mine)})", ""]
            for claim in rows:
                word = "Instead" if claim.verdict == "fails" else "Condition"
                text = claim.condition.rstrip(".")
                condition = f" *{word}:* {text}." if text else ""
                where = f" ([](/notebooks/{claim.chapter}.ipynb))" if claim.chapter else ""
                lines.append(f"- **{claim.id}** {claim.statement}{condition}{where}")
            lines.append("")
        yield root / "book" / "verdicts" / f"{name}.md", "\n".join(lines).encode()


def claim_figures(root: Path, names: tuple[str, ...]) -> dict[str, float]:
    """Return figures of claims, `row.figure`, as the executed chapters print them."""
    claims = {claim.id: claim for claim in read_claims(root)}
    printed = printed_by_chapter(root)
    found = {}
    for name in names:
        row, figure = name.split(".")
        claim = claims[row]
        found[name] = float(claim.read(printed_for(claim, printed))[figure])
    return found


def welcome_pictures(root: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield the files of the front page's pictures, then their numbers and digests."""
    import matplotlib.pyplot as plt

    from compendium.front.schematics import draw_generator, draw_layer, draw_spins
    from compendium.front.welcome import FIGURES, PICTURES, welcome_numbers
    from spinformer.plot.style import use_style
    from spinformer.plot.vector import figure_svg

    numbers = welcome_numbers(claim_figures(root, FIGURES))
    plain = {"layer": draw_layer, "spins": draw_spins, "generator": draw_generator}
    digests = {}
    for name in (*PICTURES, *plain):
        with plt.rc_context():
            use_style()
            if name in plain:
                plain[name]()
            else:
                PICTURES[name](numbers)
            files = {f"{name}.svg": figure_svg(plt.gcf()).encode()}
            if name == CARD:
                # Elsewhere than in a book a link shows no SVG. No version of a library in the file.
                stream = io.BytesIO()
                plt.savefig(stream, dpi=200, metadata={"Software": None})
                files["card.png"] = stream.getvalue()
            plt.close()
        for file, content in files.items():
            digests[file] = hashlib.sha256(content).hexdigest()
            yield root / FOLDER / file, content
    stored = {"numbers": numbers, "digests": digests}
    yield root / FOLDER / "pictures.json", (json.dumps(stored, indent=1) + "\n").encode()
