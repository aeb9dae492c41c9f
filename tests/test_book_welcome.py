"""The pages around the chapters: verdicts, pictures and numbers are current, links go both ways."""

import hashlib
import json
import re
import shutil
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np
import pytest

from bookmaker.base import contents
from bookmaker.claims import read_claims
from bookmaker.numbers import chapter_faults, page_faults, page_text
from bookmaker.places import all_places
from bookmaker.source import Chapter
from bookmaker.welcome import FOLDER, claim_figures, main_path
from compendium.front.welcome import FIGURES, HEADS, drawn_pictures, head_tones, welcome_numbers
from spinformer.plot.style import COLORS

ROOT = Path(__file__).resolve().parents[1]
AGAIN = "run python -m bookmaker welcome"
STORED = json.loads((ROOT / FOLDER / "pictures.json").read_text())
# Beside the summary, the sections of a chapter that the evening reads.
EVENING = ("Where the question comes from", "Worked example", "What to remember")
# As the page shows it, with its numbers.
WELCOME = page_text(
    ROOT, "book/welcome.md", (ROOT / "book" / "welcome.md").read_text(encoding="utf-8")
)


@pytest.fixture(scope="module")
def printed():
    """Figures of claims as the chapters print them; all notebooks are read once."""
    return claim_figures(ROOT, (*FIGURES, "C16.share"))


def test_pictures_draw_the_numbers_that_chapters_print(printed):
    for name, digest in STORED["digests"].items():
        image = (ROOT / FOLDER / name).read_bytes()
        assert hashlib.sha256(image).hexdigest() == digest, AGAIN
        assert len(image) < 150_000
    drawn = {path.name for path in (ROOT / FOLDER).iterdir()} - {"pictures.json"}
    assert drawn == set(STORED["digests"])
    figures = {name: printed[name] for name in FIGURES}
    assert STORED["numbers"]["figures"] == figures, AGAIN
    numbers = welcome_numbers(figures)
    stored = STORED["numbers"] | STORED["numbers"]["motions"]
    for name, path in (numbers | numbers["motions"]).items():
        if name in ("keys", "paths", *numbers["motions"]):
            np.testing.assert_allclose(stored[name], path, atol=1e-5, err_msg=AGAIN)


def test_pictures_are_drawn_by_the_names_and_at_the_sizes_of_those_stored():
    """Fonts of another library leave a size within some per cent."""

    def size(image):
        return [float(number) for number in re.search(r'viewBox="0 0 ([^"]*)"', image)[1].split()]

    drawn = {
        f"{name}.svg": size(image.decode()) for name, image in drawn_pictures(STORED["numbers"])
    }
    assert drawn.keys() == STORED["digests"].keys()
    for name, found in drawn.items():
        kept = size((ROOT / FOLDER / name).read_text("utf-8"))
        assert found == pytest.approx(kept, rel=0.05), name


def test_queries_of_the_first_picture_go_downhill_to_a_key():
    keys = np.array(STORED["numbers"]["keys"])
    paths = np.array(STORED["numbers"]["paths"])
    scores = STORED["numbers"]["beta"] * paths @ keys.T
    energy = 0.5 * np.square(paths).sum(-1) - np.log(np.exp(scores).sum(-1)) / 4.0
    assert (np.diff(energy, axis=1) <= 1e-6).all()
    far = np.linalg.norm(paths[:, -1, None] - keys, axis=-1)
    assert (far.min(1) < 0.05).all()
    assert len(set(far.argmin(1))) == 3


def test_motions_are_what_their_names_say():
    four, wave, wild = STORED["numbers"]["motions"].values()
    assert np.ptp(np.reshape(four, (-1, 4)), axis=0).max() < 1e-5
    assert np.ptp(np.reshape(wave, (-1, 4)), axis=0).max() > 1e-3
    assert np.abs(np.diff(wave)).max() < 0.6 * np.ptp(wave)
    assert np.abs(np.diff(wild)).max() > 0.6 * np.ptp(wild)


@pytest.mark.parametrize(
    ("pattern", "figures"),
    [
        (
            r"finds (\d+) of .*?finds (\d+) if the mean .*?, (\d+) if all .*?, and (\d+) if both",
            ("A19.own", "A19.centred", "A19.norm", "A19.both"),
        ),
        (
            r"growing length: (\d+), (\d+), (\d+) and (\d+) faces",
            ("A19.own", "A19.centred", "A19.norm", "A19.both"),
        ),
        (
            r"(\d+) of 72 attention heads lower their own energy by their output, and (\d+) raise",
            ("A14a.lowered", "A14a.raised"),
        ),
        (
            r"lowers the energy in (\d+) heads and raises it in (\d+)",
            ("A14a.specific_lowered", "A14a.specific_raised"),
        ),
        (r"mean spin of ([\d.]+) where", ("B13.leak",)),
        (r"weights, (\d+) % show all three", ("C16.share",)),
    ],
)
def test_numbers_of_the_front_page_are_figures_of_claims(printed, pattern, figures):
    found = re.search(pattern, WELCOME)
    assert found
    for text, name in zip(found.groups(), figures, strict=True):
        value = printed[name] * (100 if name == "C16.share" else 1)
        digits = len(text.partition(".")[2])
        assert f"{value:.{digits}f}" == text
    assert HEADS == 72


def test_picture_of_the_heads_draws_and_tells_every_head(printed):
    """The squares, their colours and the words for those who do not see them."""
    told = []
    for part in ("", "specific_"):
        low, high = (int(printed[f"A14a.{part}{way}"]) for way in ("lowered", "raised"))
        tones = head_tones(low, high)
        # Undecided heads are neither colour.
        counts = [tones.count(tone) for tone in (COLORS["blue"], COLORS["red"], "0.8")]
        assert counts == [low, high, HEADS - low - high]
        told += [low, high]
    alt = "Above, {} are blue for down, {} red for up; below, {} are blue and {} red"
    assert alt.format(*told) in WELCOME


def test_the_main_path_is_what_the_pdf_holds_and_the_front_page_counts():
    """Parts I to IV and the synthesis; what is below them is called further results."""
    chapters = {file for _, files in contents(ROOT) for file in files if "notebooks/" in file}
    further = {f for caption, files in contents(ROOT) if "Further" in caption for f in files}
    places = all_places(ROOT)
    course = [f"notebooks/{place.name}" for place in places if place.rank == "main"]
    pages = main_path(ROOT)
    assert pages[:2] + pages[-1:] == ["book/welcome", "book/part1", "notebooks/51_synthesis"]
    assert [page for page in pages if page in chapters] == course
    assert set(course) == chapters - further
    # The directives list and count them; no page types how many there are.
    assert "```{course}" in WELCOME
    assert "```{evening}" in WELCOME
    assert all(place.figure for place in places)


def evening_words(text):
    """The words of prose of the parts of a chapter that the evening reads."""
    sections = re.split(r"^###? (?=\S)", text, flags=re.M)
    read = [section for section in sections if re.match("|".join(EVENING), section)]
    for part in EVENING:
        assert any(section.startswith(part) for section in read), part
    (summary,) = re.findall(r"^:::\{admonition\} Summary\n(.*?)^:::", text, re.M | re.S)
    return sum(map(prose_words, [summary, *read]))


def prose_words(text):
    """How many words a text has outside of cells and displayed formulas."""
    text = re.sub(r"^```\{code-cell\}.*?^```$|\$\$.*?\$\$", "", text, flags=re.M | re.S)
    return len(text.split())


def test_the_evening_is_one_evening():
    """At most five thousand words, at a reader's pace with formulas two hours."""
    words = prose_words((ROOT / "book" / "part1.md").read_text(encoding="utf-8"))
    evening = [place for place in all_places(ROOT) if place.evening]
    assert len(evening) >= 5
    for place in evening:
        words += evening_words(Chapter(ROOT, place.name).shown_text)
    assert words <= 5000


def test_scales_that_the_front_page_names():
    """The inverse temperature of the memory of faces, and how flat the first motion is."""
    from compendium.common import images

    assert "inverse temperature is 25 times that of a transformer's attention" in WELCOME
    assert images.faces().shape[1] ** 0.5 == 25
    heights = [np.ptp(path) for path in STORED["numbers"]["motions"].values()]
    assert "seven hundred times flatter" in WELCOME
    assert heights[-1] / heights[0] == pytest.approx(700, rel=0.05)


def test_chapters_that_build_on_one_another_say_so_both_ways_and_none_builds_on_itself():
    told = re.compile(r"^\*\*Builds on\*\* (.*?)\. \*\*Leads to\*\* (.*)\.$", re.M)
    up = {}
    down = {}
    for path in (ROOT / "notebooks").glob("*.md"):
        if found := told.search(path.read_text()):
            up[path.stem], down[path.stem] = (
                set(re.findall(r"\((\w+)\.md\)", way)) for way in found.groups()
            )
    assert len(up) >= 30
    pairs = {(low, name) for name in up for low in up[name]}
    back = {(name, high) for name in down for high in down[name]}
    assert {pair for pair in pairs ^ back if set(pair) <= set(up)} == set()
    TopologicalSorter(up).prepare()


@pytest.fixture
def links(tmp_path):
    """The checkout as links, but for README and the folders of the pages and of the claims."""
    for path in ROOT.iterdir():
        if path.name not in ("book", "README.md", ".git"):
            (tmp_path / path.name).symlink_to(path)
    shutil.copy(ROOT / "README.md", tmp_path)
    for folder in ("book", "book/claims"):
        (tmp_path / folder).mkdir()
        for path in (ROOT / folder).iterdir():
            if path.name != "claims":
                (tmp_path / folder / path.name).symlink_to(path)
    return tmp_path


def falsified(root, file, pattern, text):
    """Write a page in which the first match of a pattern is another text; return its line."""
    path = root / file
    source = path.read_text(encoding="utf-8")
    place = re.search(pattern, source, flags=re.DOTALL)
    assert place, pattern
    path.unlink()
    path.write_text(source[: place.start()] + text + source[place.end() :], encoding="utf-8")
    return source.count("\n", 0, place.start()) + 1


@pytest.mark.parametrize(
    ("file", "pattern", "text", "problem"),
    [
        # Typed in the place of the name: prose, alt text, table, mathematics.
        ("book/welcome.md", r"{value}`25:pair[^`]*`", "0.13", "0.13 is typed"),
        ("book/welcome.md", r"{value}`33e:shown[^`]*`", "61 %", "61 is typed"),
        ("book/welcome.md", r"(?<=length: ){value}`[^`]*`", "75", "75 is typed"),
        ("book/use.md", r"{value}`benchmarks:drop_in[^`]*median[^`]*`", "97.4 %", "97.4 is typed"),
        ("book/use.md", r"{value}`benchmarks:spin_module.saddle[^`]*`", "2.9", "2.9 is typed"),
        ("book/part1.md", r"{value}`11:capacity:.2f`", "0.41", "0.41 is typed"),
        ("book/sweeps.md", r"{value}`benchmarks:sweeps[^`]*`", "1.99", "1.99 is typed"),
        ("README.md", r"How fast\n", "How fast\n\nIt takes 1.5 s.", "1.5 is typed"),
        # Another name, another mark.
        ("book/welcome.md", r"equilibrium\]", "equilibria]", "0 rows have dynamics=equilibria"),
        ("book/use.md", r"torch_layer.low", "torch_layer.least", "has no entry 'least'"),
        ("book/welcome.md", r"25 = sqrt\(625\)", "24 = sqrt(625)", "gives 25"),
        ("book/explorables.md", r"(?<={setting}`)1.275", "1.725", "no such number in its code"),
        # README is filled from the names.
        ("README.md", r"(?<=:,-->)4,001", "4,010", "other numbers than the notebooks"),
        ("README.md", r"(?<=minutes:.1f-->)[\d.]+", "0.1", "other numbers than the notebooks"),
    ],
)
def test_a_falsified_number_on_a_page_is_a_fault(links, file, pattern, text, problem):
    line = falsified(links, file, pattern, text)
    (fault,) = page_faults(links)
    assert fault.path == file
    assert problem in fault.message
    assert fault.line in (1, line, line + 2)


@pytest.mark.parametrize(
    ("chapter", "pattern", "text", "problem"),
    [
        ("33e_census", r"{share:.3f}(?=; lower)", "0.651", "C16: 0.651 is typed"),
        ("31_asymmetric_hopfield", r"(?<={pairs} of ){value}`pairs.all`", "37", "C1b: 37 is typed"),
        ("12b_continuous_capacity", r"49 = 7\^2", "94 = 7^2", "A13: 94 = 7^2: gives 49"),
        ("33_phase_transitions", r"1\.252\n", "1.225\n", "C9: 1.225 is typed"),
    ],
)
def test_a_falsified_number_of_a_claim_is_a_fault(links, chapter, pattern, text, problem):
    before = list(chapter_faults(Chapter(ROOT, chapter), read_claims(ROOT), None))
    falsified(links, f"book/claims/{chapter}.yml", pattern, text)
    after = list(chapter_faults(Chapter(links, chapter), read_claims(links), None))
    (fault,) = set(after) - set(before)
    assert problem in fault.message
