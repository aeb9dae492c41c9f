"""What a chapter gives at the small values of its parameters, kept in `data/small_runs`.

    python tests/small_runs.py NAME…   # writes it anew for these chapters, for all if none is named

Kept are the figures that its cells hand over and, of every curve, picture and bar that they draw,
the means. A number that differs on one of two older processors, which the command emulates in
further runs, is amplified rounding: it is kept as null, and nothing is compared with it.
"""

import json
import linecache
import math
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from types import ModuleType

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from IPython.display import display
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from bookmaker.figures import FIGURES
from bookmaker.source import chapters, has_tag, python_source
from compendium.common import report

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests" / "data" / "small_runs"
# Of a number, and of what is left where two large ones cancel. Between processors numbers that are
# kept agree within a tenth of this.
RTOL, ATOL = 1e-3, 1e-6
OLDER = (
    {
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "OPENBLAS_CORETYPE": "Nehalem",
        "NUMBA_CPU_NAME": "nehalem",
        "DNNL_MAX_CPU_ISA": "SSE41",
    },
    # Without fused products, and sums in two parts.
    {
        "MKL_ENABLE_INSTRUCTIONS": "AVX",
        "OPENBLAS_CORETYPE": "Sandybridge",
        "NUMBA_CPU_NAME": "sandybridge",
        "DNNL_MAX_CPU_ISA": "AVX",
        "OMP_NUM_THREADS": "2",
    },
)


def run_here(chapter, values):
    """Run the cells of a chapter in this process, so that what chapters share is compiled once.

    nbval runs every chapter in a kernel of its own; that papermill passes the values on is tested
    with a small chapter. A warning is an error here as in every test. Returns the figures that the
    cells hand over by name, and the drawn ones.
    """
    given: dict[str, object] = {}
    drawn: list[Figure] = []

    def take(output, **settings):
        if settings == {"raw": True} and FIGURES in output:
            given.update(output[FIGURES])
        else:
            display(output, **settings)

    # Classes that a cell defines look for their module.
    module = ModuleType("chapter")
    # A kernel offers this without an import.
    module.__dict__["display"] = display
    with pytest.MonkeyPatch.context() as patch, matplotlib.rc_context(), warnings.catch_warnings():
        # Python shows this one to the developers of a library only.
        warnings.simplefilter("ignore", DeprecationWarning)
        patch.setitem(sys.modules, "chapter", module)
        patch.setattr(report, "display", take)
        patch.setattr(plt, "show", lambda: drawn.append(plt.gcf()) or plt.close("all"))
        threads = torch.get_num_threads()
        for cell in chapter.template.cells:
            if cell.cell_type == "code" and not has_tag(cell, "install"):
                name = f"{chapter.name}, {cell.id}"
                code = python_source(cell.source)
                # So that a traceback shows the lines of the cell.
                linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
                exec(compile(code, name, "exec"), module.__dict__)
                if has_tag(cell, "parameters"):
                    module.__dict__.update(values)
        torch.set_num_threads(threads)
    return given, drawn


def means(*arrays):
    """Means of the finite entries of arrays, and of their squares."""
    found = []
    for array in arrays:
        numbers = np.ma.getdata(np.ma.asarray(array)).astype(float).ravel()
        finite = numbers[np.isfinite(numbers)]
        found += [len(finite)]
        found += [float(np.mean(finite**power)) if len(finite) else 0.0 for power in (1, 2)]
    return [float(f"{value:.6g}") for value in found]


def drawn_means(figure):
    """Means of what a figure draws: curves, points, pictures and bars, in the order of drawing."""
    found = []
    for axes in figure.axes:
        found += [means(*line.get_data(orig=False)) for line in axes.lines]
        for drawn in axes.collections:
            if isinstance(drawn, PathCollection):
                found.append(means(*np.ma.getdata(drawn.get_offsets()).T))
            elif isinstance(drawn, QuadMesh):
                found.append(means(drawn.get_array()))
        found += [means(picture.get_array()) for picture in axes.images]
        bars = [drawn for drawn in axes.patches if isinstance(drawn, Rectangle)]
        found += [means(*drawn.get_bbox().get_points().T) for drawn in bars]
    return found


def gives(chapter):
    """What a chapter gives at the small values of its parameters, and the drawn figures."""
    given, drawn = run_here(chapter, chapter.parameter_cell.small)
    kept = {name: given[name] for name in sorted(given)}
    return kept | {f"drawn {place}": drawn_means(one) for place, one in enumerate(drawn)}, drawn


def differences(new, kept, *, rtol=RTOL, where=""):
    """Where two results differ, in words; null is kept of what depends on the processor."""
    if kept is None:
        return []
    if isinstance(kept, dict) and isinstance(new, dict) and kept.keys() == new.keys():
        pairs = [(new[key], kept[key], f"{where}.{key}".lstrip(".")) for key in kept]
    elif isinstance(kept, list) and isinstance(new, list) and len(kept) == len(new):
        pairs = [(*both, f"{where}[{n}]") for n, both in enumerate(zip(new, kept, strict=True))]
    else:
        return [] if same(new, kept, rtol=rtol) else [f"{where}: {new!r}, kept {kept!r}"]
    return [
        words
        for one, other, name in pairs
        for words in differences(one, other, rtol=rtol, where=name)
    ]


def same(new, kept, *, rtol):
    """Whether two entries are one: numbers, also in texts, within the tolerance."""
    if isinstance(new, list | dict) or isinstance(kept, list | dict):
        return False
    if isinstance(new, bool) or isinstance(kept, bool) or new == kept:
        return new == kept
    try:
        return math.isclose(float(new), float(kept), rel_tol=rtol, abs_tol=ATOL * rtol / RTOL)
    except ValueError:
        return False


def agreed(one, other):
    """The first of two results, without what differs or was left out already."""
    if one is None:
        return None
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return {key: agreed(one[key], other[key]) for key in one}
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [agreed(*both) for both in zip(one, other, strict=True)]
    return one if same(one, other, rtol=RTOL / 10) else None


def keep(script, folder, names, results):
    """Keep `results(name)`, a dictionary, in a file of a folder for each name, by several runs.

    `names` are all that there are; those on the command line are kept, or all if there is none.
    A run is this script with `--show`, and shows each result in a line that begins with its name.
    """
    asked = [name for name in sys.argv[1:] if name != "--show"]
    if unknown := set(asked) - set(names):
        sys.exit(f"no {min(unknown)}; there are: {', '.join(names)}")
    if "--show" in sys.argv:
        for name in asked:
            print(f"\n{name} {json.dumps(results(name))}", flush=True)
        return
    asked = asked or list(names)
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, script, "--show", *asked]
        runs = [
            subprocess.Popen(command, env=os.environ | settings, stdout=subprocess.PIPE, text=True)
            for settings in ({}, *(one | {"NUMBA_CACHE_DIR": cache} for one in OLDER))
        ]
        folder.mkdir(exist_ok=True)
        for name in asked:
            found = [
                next(
                    json.loads(line[len(name) :])
                    for line in run.stdout
                    if line.startswith(f"{name} {{")
                )
                for run in runs
            ]
            kept = found[0]
            for other in found[1:]:
                kept = {key: agreed(kept[key], other.get(key)) for key in kept}
            lines = [
                f"{json.dumps(key)}: {json.dumps(kept[key], ensure_ascii=False)}" for key in kept
            ]
            (folder / f"{name}.json").write_text(
                "{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8"
            )
            print(name, len(lines), flush=True)


if __name__ == "__main__":
    matplotlib.use("Agg")
    BY_NAME = {chapter.name: chapter for chapter in chapters(ROOT)}
    keep(__file__, FOLDER, BY_NAME, lambda name: gives(BY_NAME[name])[0])
