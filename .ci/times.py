"""How long the commands take: `make times`, or `python .ci/times.py book test`, measures and says.

A fresh clone of the last commit is made in a temporary folder and each command is run there by
`make`. `book` comes first and includes the installation; without it the installation is not
counted. The minutes go into `book/times.yml`, and from there into every sentence of README.md,
CONTRIBUTING.md, book/use.md and the Makefile that names the command and a time. Without a name
nothing is measured and the sentences are written from the file as it is.
"""

import argparse
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import yaml

from bookmaker.measured import TIMES_FILE, machine

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", "book/use.md", "Makefile")
HEAD = "# Minutes that a command takes. `make times` measures these and writes them, here and in"
# A line that names a command, as `make test` or as the target `test:`, and a time.
NAMED = re.compile(r"\bmake (?P<make>[a-z-]+)|^(?P<target>[a-z-]+):.*##")
STATED = re.compile(r"\babout \d+(?:\.\d+)? min\b")


def read_times() -> dict[str, dict[str, object]]:
    """Return for each command its minutes and where they were measured."""
    times: dict[str, dict[str, object]] = yaml.safe_load((ROOT / TIMES_FILE).read_text("utf-8"))
    return times


def with_times(text: str, times: Mapping[str, Mapping[str, object]]) -> str:
    """Return a text whose times are those of the file; ValueError for a command without one."""
    lines = []
    for line in text.splitlines():
        named = NAMED.search(line)
        if named and STATED.search(line):
            command = named["make"] or named["target"]
            if command not in times:
                raise ValueError(f"{TIMES_FILE} has no time for `make {command}`: {line}")
            line = STATED.sub(f"about {times[command]['minutes']} min", line)
        lines.append(line)
    return "\n".join(lines) + "\n"


def measured(names: list[str]) -> dict[str, dict[str, object]]:
    """Run commands in a fresh clone; return their minutes. CalledProcessError if one fails."""
    times: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        if "book" not in names:
            subprocess.run(["make", "install"], cwd=clone, check=True)
        for name in sorted(names, key="book".__ne__):
            begin = time.monotonic()
            subprocess.run(["make", name], cwd=clone, check=True)
            minutes = round((time.monotonic() - begin) / 60, 1)
            times[name] = {"minutes": minutes, "where": machine()}
            print(f"make {name}: {minutes} min")
    return times


def write(times: Mapping[str, Mapping[str, object]]) -> None:
    """Write the file and the sentences."""
    text = f"{HEAD}\n# the sentences of {', '.join(PAGES)}.\n"
    text += yaml.safe_dump(dict(times), sort_keys=True, allow_unicode=True)
    (ROOT / TIMES_FILE).write_text(text, encoding="utf-8")
    for page in PAGES:
        path = ROOT / page
        path.write_text(with_times(path.read_text("utf-8"), times), encoding="utf-8")


def main() -> None:
    """Measure what is asked for and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="targets of the Makefile, such as book and test")
    names = parser.parse_args().names
    write(read_times() | (measured(names) if names else {}))


if __name__ == "__main__":
    main()
