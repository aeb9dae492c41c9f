"""Command line of the chapters: list, run, sweep, table, build, check, new, welcome, pdf."""

import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import click

from bookmaker.base import (
    BookError,
    ParameterError,
    WorkerDied,
    has_no_room,
    missing_library,
    project_root,
    refuse_own_folders,
    write_atomically,
)
from bookmaker.checking import all_faults, write_chapter
from bookmaker.claims import region_to_confirm
from bookmaker.execution import rebuild, run, write_notebook
from bookmaker.measured import record_table
from bookmaker.source import chapters, read_notebook
from bookmaker.sweeping import POINTS, finished_points, read_points, sweep_chapter
from bookmaker.sweeps.engine import Workers, stream
from bookmaker.tables import tables_of
from bookmaker.welcome import contents_file, cover, readme, welcome_pictures, write_pdf

# How a command says what is kept when it is stopped or finds no room on the disk.
_KEPT = "bookmaker.kept"


def keep(message: str) -> None:
    """Say what is kept, from now on, if the present command does not come to its end."""
    click.get_current_context().meta[_KEPT] = message


class Commands(click.Group):
    """The one place that turns errors into a line."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a refusal or a failure ends in a message, never in a traceback."""
        # A batch system ends a job with SIGTERM: stop as with Ctrl-C.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            kept = f": {ctx.meta[_KEPT]}" if _KEPT in ctx.meta else ""
            click.echo(f"stopped{kept}", err=True)
            sys.exit(130)
        except ModuleNotFoundError as error:
            click.echo(f"Error: {missing_library(error)}", err=True)
            sys.exit(2)
        except (BookError, OSError) as error:
            kept = f"; {ctx.meta[_KEPT]}" if has_no_room(error) and _KEPT in ctx.meta else ""
            click.echo(f"Error: {error}{kept}", err=True)
            sys.exit(getattr(error, "exit_code", 2))


def by_name(_context: object, _option: object, pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return values by name; ParameterError if one comes twice."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ParameterError(f"a parameter is given twice among {', '.join(n for n, _ in pairs)}")
    return values


option = partial(click.option, show_default=True)
values_option = option(
    "-p", "values", type=(str, str), multiple=True, metavar="NAME VALUE", callback=by_name
)
output_option = option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="Folder for the results."
)
processes = "Processes; 0 this one alone, -1 as many as cores."
workers_option = partial(option, "--workers", "count", type=click.IntRange(min=-1), help=processes)
scheduler_option = option("--scheduler", default="", help="Address of a Dask scheduler.")


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """The chapters of the book: list them, run one, rebuild the stale ones, add one."""


@main.command("list")
@click.argument("names", nargs=-1)
def list_chapters(names: tuple[str, ...]) -> None:
    """List chapters with their parameters: type, default, values allowed, meaning."""
    for chapter in chapters(names=names):
        cell = chapter.parameter_cell
        click.echo(f"{chapter.name}: {chapter.title}")
        for parameter in cell.parameters.values():
            click.echo(f"  {parameter.name} = {parameter.default!r}  ({parameter.allowed})")
            click.echo(f"      {parameter.help}")
        for condition, reason in cell.requirements.items():
            click.echo(f"  requires {condition}{reason}")


@main.command("run")
@click.argument("name")
@values_option
@option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("my-run"),
    help="Folder for the results.",
    show_default=True,
)
@option("--html", is_flag=True, help="Write a page beside the notebook, too.")
def run_chapter(name: str, values: dict[str, str], output: Path, html: bool) -> None:
    """Run chapter NAME with other parameters into a folder of your own."""
    (chapter,) = chapters(names=(name,))
    refuse_own_folders(chapter.root, output)
    keep(f"what was finished by then is kept in {output}")
    click.echo("\n".join(map(str, run(chapter, output, values, html=html))))


@main.command("sweep")
@click.argument("name")
@values_option
@output_option
@workers_option(default=-1)
@scheduler_option
@option("--again", is_flag=True, help="Also compute points anew that failed before.")
@option("--dry-run", is_flag=True, help="Only list what would run.")
def sweep(
    name: str, values: dict[str, str], output: Path, again: bool, dry_run: bool, **workers: Any
) -> None:
    """Run chapter NAME at many points: notebooks, and one table, in a folder of your own.

    `-p beta 1.2:1.3:11` is eleven values from 1.2 to 1.3, and `-p kind a,b` two words; several
    options multiply. The same command goes on where it was stopped. Ends with 1 if points failed.
    """
    (chapter,) = chapters(names=(name,))
    refuse_own_folders(chapter.root, output)
    points = read_points(chapter, values)
    if dry_run:
        done = finished_points(output)
        for point in points:
            now = "finished" if point.key in done else "to run"
            click.echo(f"{point.asked}: {'refused, ' + point.error if point.error else now}")
        return
    click.echo(f"{len(points)} points, from {points[0].asked} to {points[-1].asked}")
    keep(f"what is finished is kept in {output / POINTS}; the same command goes on")
    summary, failed = sweep_chapter(
        chapter, output, points, workers=Workers(**workers), again=again
    )
    click.echo(summary)
    sys.exit(1 if failed else 0)


@main.command("table")
@click.argument("chapter")
@click.argument("name", required=False)
@option("--small", is_flag=True, help="Make the rows of its small unit, which tests compute again.")
@workers_option(default=0)
@scheduler_option
def table(chapter: str, name: str | None, small: bool, **workers: Any) -> None:
    """Make a chapter's stored table anew, or go on with it; without NAME list what there is."""
    tables = tables_of(chapter)
    if small:
        tables = {name: table for name, table in tables.items() if table.small is not None}
    if name not in tables:
        kind = "tables with a small unit" if small else "tables"
        raise BookError(f"{chapter} has the {kind} {', '.join(sorted(tables)) or 'none'}")
    made = tables[name].again if small else tables[name]
    region = region_to_confirm(project_root(), made)
    keep(f"what is finished is kept in {made.part}; the same command goes on")
    made.make(workers=Workers(**workers), region=region)
    record_table(project_root(), made.path)
    click.echo(made.path)


@main.command("build")
@click.argument("names", nargs=-1)
@option("--all", "everything", is_flag=True, help="Also those that are up to date.")
@option("--jobs", type=click.IntRange(min=1), default=1, help="Chapters at a time.")
def build(names: tuple[str, ...], everything: bool, jobs: int) -> None:
    """Bring the notebooks (or those of NAMES) up to date; execute where code or outputs changed.

    A chapter that fails keeps its old notebook; the others are built all the same.
    """
    selected = chapters(names=names)
    keep("the chapters that are finished are kept in notebooks; the same command goes on")
    waiting = []
    problems = []
    for chapter in selected:
        try:
            chapter.require_sound()
            reason, execute = chapter.stale()
            if everything or execute:
                click.echo(f"{chapter.name}: {reason or 'asked for'}")
                waiting.append({"root": chapter.root, "name": chapter.name})
            elif reason:
                write_notebook(chapter, read_notebook(chapter.notebook_path))
                click.echo(f"{chapter.name}: text taken over from the source, nothing executed")
        except BookError as error:
            problems.append(str(error))
    click.echo(f"{len(waiting)} of {len(selected)} chapters to execute")
    for place, problem in stream(rebuild, waiting, workers=Workers(count=jobs if jobs > 1 else 0)):
        name = waiting[place]["name"]
        click.echo(f"{name}: {'failed' if problem else 'written'}")
        if problem:
            problems.append(f"{name}: {problem}" if isinstance(problem, WorkerDied) else problem)
    # Numbers that came anew stand in other chapters' texts, too.
    for chapter in chapters() if waiting else []:
        with suppress(BookError):
            reason, execute = chapter.stale()
            if reason and not execute:
                write_notebook(chapter, read_notebook(chapter.notebook_path))
                click.echo(f"{chapter.name}: text taken over, with numbers of other chapters")
    for problem in problems:
        click.echo(f"Error: {problem}", err=True)
    sys.exit(1 if problems else 0)


@main.command("pdf")
def pdf() -> None:
    """Print the main path from the built pages into one PDF; `make pdf` installs what it needs."""
    root = project_root()
    click.echo(write_pdf(root, root / "_build" / "html"))


@main.command("welcome")
def welcome() -> None:
    """Make what stands around the chapters: contents, README, the front page's pictures."""
    root = project_root()
    for path, content in [contents_file(root), readme(root), cover(root), *welcome_pictures(root)]:
        if not path.exists() or path.read_bytes() != content:
            write_atomically(path, content)
            click.echo(path)


@main.command("check")
@click.argument("names", nargs=-1)
def check(names: tuple[str, ...]) -> None:
    """Name every fault of the chapters (or NAMES) by file and line; exit with 1 if any."""
    faults = all_faults(project_root(), names)
    for fault in faults:
        click.echo(str(fault), err=True)
    if not faults:
        click.echo(f"checked {', '.join(names) or 'all chapters and claims'}: no fault")
    sys.exit(1 if faults else 0)


@main.command("new")
@click.argument("name")
@click.argument("title", default="")
def new(name: str, title: str) -> None:
    """Begin chapter NAME (NN_words): its source, claims, tests, folder and line in the contents.

    TITLE is a question or a finding.
    """
    click.echo("\n".join(map(str, write_chapter(project_root(), name, title))))
    click.echo("every TODO in it says what belongs there; then `build` and `check` it")
