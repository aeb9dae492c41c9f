"""Command line of the chapters: list, run, sweep, build, check, new."""

from __future__ import annotations

import re
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click

from bookmaker.checking import all_faults
from bookmaker.errors import BookError, ChapterError
from bookmaker.execution import rebuild_all, run, write_notebook
from bookmaker.files import write_atomically
from bookmaker.frame import cover, verdicts, welcome_pictures
from bookmaker.freshness import read_notebook, state
from bookmaker.parameters import values_from_pairs
from bookmaker.pdf import write_pdf
from bookmaker.points import read_points
from bookmaker.project import project_root
from bookmaker.scaffold import next_steps, write_chapter
from bookmaker.source import Chapter, chapters
from bookmaker.sweeping import finished, sweep_chapter
from bookmaker.sweeps.engine import Workers
from bookmaker.tables import tables_of


class Commands(click.Group):
    """The one place that turns errors into a line."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a refusal or a failure ends in a message, never in a traceback."""
        try:
            return super().invoke(ctx)
        except BookError as error:
            message, code = str(error), error.exit_code
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            message, code = f"{where}{error.strerror or error}", 2
        click.echo(f"Error: {message}", err=True)
        sys.exit(code)


class RunCommand(click.Command):
    """Takes `-p beta=2` for `-p beta 2`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Split NAME=VALUE after -p before click reads the options."""
        split: list[str] = []
        for argument in args:
            joined = re.match(r"([A-Za-z_]\w*)=(.*)$", argument, flags=re.DOTALL)
            if joined and split and split[-1] in ("-p", "--parameter"):
                split += joined.groups()
            else:
                split.append(argument)
        return super().parse_args(ctx, split)


AT_LEAST_ONE = click.IntRange(min=1)
values_option = partial(click.option, "-p", "--parameter", "values", type=(str, str), multiple=True)
output_option = partial(
    click.option, "-o", "--output", type=click.Path(path_type=Path), required=True
)
progress_option = click.option("--progress/--no-progress", default=True, help="Show a bar.")
scheduler_option = click.option(
    "--scheduler", default="", help="Address of a Dask scheduler that is there."
)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """The chapters of the book: list them, run one, rebuild the stale ones, add one."""


@main.command("list")
@click.argument("names", nargs=-1)
def list_chapters(names: tuple[str, ...]) -> None:
    """List chapters with their parameters: type, default, values allowed, meaning."""
    unreadable = 0
    for chapter in chapters(names=names):
        try:
            lines = [f"{chapter.name}: {chapter.title}"]
            for parameter in chapter.parameters:
                lines.append(f"  {parameter.name} = {parameter.default!r}  ({parameter.allowed})")
                lines.append(f"      {parameter.help}")
            lines += [f"  requires {r}" for r in chapter.parameter_cell.requirements]
            click.echo("\n".join(lines))
        except BookError as error:
            unreadable += 1
            click.echo(str(error), err=True)
    sys.exit(1 if unreadable else 0)


@main.command("run", cls=RunCommand)
@click.argument("name")
@values_option(metavar="NAME VALUE", help="Set a parameter; may be repeated.")
@output_option(help="Folder for the executed notebook.")
@click.option("--html", is_flag=True, help="Write a page beside the notebook, too.")
@progress_option
def run_chapter(
    name: str, values: tuple[tuple[str, str], ...], output: Path, html: bool, progress: bool
) -> None:
    """Run chapter NAME with other parameters into a folder of your own."""
    (chapter,) = chapters(names=(name,))
    if output.resolve() == chapter.notebook_path.parent.resolve():
        raise ChapterError("output must not be the folder of the committed notebooks")
    checked = chapter.check_values(values_from_pairs(values), text=True)
    for path in run(chapter, output, checked, html=html, progress=progress):
        click.echo(path)


@main.command("sweep", cls=RunCommand)
@click.argument("name")
@values_option(
    metavar="NAME VALUES",
    help="Values of a parameter, `1.2:1.3:11` or `a,b`; several options multiply.",
)
@click.option(
    "-f",
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML: a grid (name: values) or a list of points.",
)
@output_option(help="Folder for table and notebooks; what is finished there is not computed again.")
@click.option("--workers", type=AT_LEAST_ONE, help="Processes; as many as cores.")
@scheduler_option
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    help="How often a point is tried again whose kernel or worker died.",
)
@click.option("--again", is_flag=True, help="Also compute points anew that failed before.")
@click.option("--dry-run", is_flag=True, help="Only list what would run.")
@progress_option
def sweep(
    name: str,
    values: tuple[tuple[str, str], ...],
    file: Path | None,
    output: Path,
    workers: int | None,
    scheduler: str,
    retries: int,
    again: bool,
    dry_run: bool,
    progress: bool,
) -> None:
    """Run chapter NAME at many points: notebooks, and one table, in a folder of your own.

    The same command goes on where it was stopped. Ends with 1 if points failed.
    """
    (chapter,) = chapters(names=(name,))
    points = read_points(chapter, values, file)
    if dry_run:
        done = finished(chapter, output, points)
        for point in points:
            row = done.get(point.key)
            state_of = "failed" if row and row["error"] else "finished" if row else "to run"
            click.echo(f"{point}: {'refused, ' + point.error if point.error else state_of}")
        return
    engine = Workers(count=workers or -1, scheduler=scheduler, retries=retries)
    # A batch system ends a job with SIGTERM: stop as with Ctrl-C.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        report = sweep_chapter(
            chapter, output, points, workers=engine, again=again, progress=progress
        )
    except KeyboardInterrupt:
        count = len(finished(chapter, output, points))
        stopped(f"{count} of {len(points)} points are finished and kept in {output}")
    finally:
        signal.signal(signal.SIGTERM, before)
    click.echo(report)
    sys.exit(1 if report.failed else 0)


def stopped(kept: str) -> NoReturn:
    """End a command that was interrupted."""
    click.echo(f"stopped: {kept}; the same command goes on", err=True)
    sys.exit(130)


@main.command("table")
@click.argument("chapter")
@click.argument("name", required=False)
@click.option("--limit", type=click.IntRange(min=0), help="Stop after so many units.")
@click.option("--workers", type=click.IntRange(min=0), default=0, help="Processes beside this one.")
@scheduler_option
def table(chapter: str, name: str | None, limit: int | None, workers: int, scheduler: str) -> None:
    """Make a chapter's stored table anew, or go on with it; without NAME list what there is."""
    found = tables_of(chapter)
    if name is None:
        click.echo("\n".join(sorted(found)) or f"{chapter} has no stored table")
        return
    if name not in found:
        raise ChapterError(f"{chapter} has no table {name!r}; it has {', '.join(found) or 'none'}")
    try:
        whole = found[name].make(limit=limit, workers=Workers(count=workers, scheduler=scheduler))
    except KeyboardInterrupt:
        stopped("what is done is kept")
    click.echo(found[name].path if whole else "not all units are done: call it again")


@main.command("build")
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Also those that are up to date.")
@click.option("--jobs", type=AT_LEAST_ONE, default=1, help="Chapters at a time.")
@progress_option
def build(names: tuple[str, ...], everything: bool, jobs: int, progress: bool) -> None:
    """Bring the notebooks (or those of NAMES) up to date; execute where code or outputs changed.

    A chapter that fails keeps its old notebook; the others are built all the same.
    """
    selected = chapters(names=names)
    waiting: list[Chapter] = []
    problems: list[str] = []
    for chapter in selected:
        try:
            chapter.require_sound()
            found = state(chapter)
            if everything or found.execute:
                click.echo(f"{chapter.name}: {found.reason or 'asked for'}")
                waiting.append(chapter)
            elif found.reason:
                write_notebook(chapter, read_notebook(chapter.notebook_path))
                click.echo(f"{chapter.name}: text taken over from the source, nothing executed")
        except BookError as error:
            problems.append(str(error))
    click.echo(f"{len(waiting)} of {len(selected)} chapters to execute")
    for done, (name, problem) in enumerate(rebuild_all(waiting, jobs, progress=progress), start=1):
        click.echo(f"[{done}/{len(waiting)}] {name}: {'failed' if problem else 'written'}")
        if problem:
            problems.append(problem if name in problem else f"{name}: {problem}")
    for problem in problems:
        click.echo(f"Error: {problem}", err=True)
    sys.exit(1 if problems else 0)


@main.command("pdf")
def pdf() -> None:
    """Print the main path from the built pages into one PDF; `make pdf` installs what it needs."""
    root = project_root()
    click.echo(write_pdf(root, root / "_build" / "html").relative_to(root))


@main.command("frame")
def frame() -> None:
    """Write what stands around the chapters: README's figure, verdicts, front page pictures."""
    root = project_root()
    for path, content in [cover(root), *verdicts(root), *welcome_pictures(root)]:
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, content)
            click.echo(path.relative_to(root))


@main.command("check")
@click.argument("names", nargs=-1)
def check(names: tuple[str, ...]) -> None:
    """Name every fault of the chapters (or NAMES) by file and line; exit with 1 if any.

    Looks at the sources, the notebooks' age, the table of contents, the values of the test run,
    the bibliography and the claims, and whether chapters that build on one another say so both
    ways.
    """
    faults = all_faults(project_root(), names)
    for fault in faults:
        click.echo(str(fault), err=True)
    if not faults:
        what = ", ".join(names) or f"{len(chapters())} chapters, contents, claims, bibliography"
        click.echo(f"checked {what}: no fault")
    sys.exit(1 if faults else 0)


@main.command("new")
@click.argument("name")
@click.option("--title", default="", help="Title of the chapter: a question or a finding.")
def new(name: str, title: str) -> None:
    """Begin chapter NAME (NN_words): its source, values for its test run, its place in the book."""
    root = project_root()
    for path in write_chapter(root, name, title):
        click.echo(path.relative_to(root))
    click.echo(next_steps(name))


if __name__ == "__main__":
    main(prog_name="python -m bookmaker")
