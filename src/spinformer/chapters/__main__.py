"""Command line of the chapters: list, run, build, check."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from papermill.exceptions import PapermillExecutionError

from spinformer.chapters.execution import rebuild, restamp, run, stamp_project, write_atomically
from spinformer.chapters.figures import cover_png
from spinformer.chapters.parameters import ParameterError, check_values
from spinformer.chapters.project import project_root
from spinformer.chapters.source import Chapter, ChapterError, chapters


class Refused(click.ClickException):
    """What the user asked for does not exist or is not allowed: one line, exit code 2."""

    exit_code = 2


def _chapters(names: tuple[str, ...]) -> list[Chapter]:
    try:
        return chapters(names=names)
    except (ChapterError, FileNotFoundError) as error:
        raise Refused(str(error)) from None


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """The chapters of the book: list them, run one, rebuild the stale ones."""


@main.command("list")
@click.argument("names", nargs=-1)
def list_chapters(names: tuple[str, ...]) -> None:
    """List chapters with their parameters: type, default, values allowed, meaning."""
    for chapter in _chapters(names):
        click.echo(f"{chapter.name}: {chapter.title}")
        for parameter in chapter.parameters:
            click.echo(
                f"  {parameter.name} = {parameter.default!r}  ({parameter.allowed})\n"
                f"      {parameter.help}"
            )


@main.command("run")
@click.argument("name")
@click.option(
    "-p",
    "--parameter",
    "values",
    type=(str, str),
    multiple=True,
    metavar="NAME VALUE",
    help="Set a parameter; may be repeated.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder for the executed notebook.",
)
@click.option("--html", is_flag=True, help="Write a page beside the notebook, too.")
@click.option("--progress/--no-progress", default=True, help="Show a bar over the cells.")
def run_chapter(
    name: str,
    values: tuple[tuple[str, str], ...],
    output: Path,
    html: bool,
    progress: bool,
) -> None:
    """Run chapter NAME with other parameters into a folder of your own."""
    (chapter,) = _chapters((name,))
    if output.resolve() == chapter.notebook_path.parent.resolve():
        raise Refused("output must not be the folder of the committed notebooks")
    try:
        checked = check_values(chapter.parameters, dict(values), text=True)
    except ParameterError as error:
        raise Refused(str(error)) from None
    try:
        for path in run(chapter, output, checked, html=html, progress=progress):
            click.echo(path)
    except (PapermillExecutionError, ChapterError) as error:
        raise click.ClickException(str(error).strip()) from None


@main.command("build")
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Also those that are up to date.")
@click.option("--progress/--no-progress", default=True, help="Show a bar over the cells.")
def build(names: tuple[str, ...], everything: bool, progress: bool) -> None:
    """Execute the stale chapters (or NAMES) and replace their notebooks."""
    selected = _chapters(names)
    stamp_project(project_root())
    for position, chapter in enumerate(selected, start=1):
        reason = "asked for" if everything else chapter.stale()
        click.echo(f"[{position}/{len(selected)}] {chapter.name}: {reason or 'up to date'}")
        try:
            if reason:
                rebuild(chapter, progress=progress)
            else:
                restamp(chapter)
        except (PapermillExecutionError, ParameterError, ChapterError) as error:
            raise click.ClickException(str(error).strip()) from None


@main.command("cover")
def cover() -> None:
    """Copy the figure that README and the front page show out of its chapter."""
    root = project_root()
    path, image = root / "book" / "_static" / "cover.png", cover_png(root)
    if not path.exists() or path.read_bytes() != image:
        write_atomically(path, image)


@main.command("check")
def check() -> None:
    """Name the chapters whose notebook is stale; exit with 1 if there are any."""
    stale = {chapter.name: reason for chapter in _chapters(()) if (reason := chapter.stale())}
    for name, reason in stale.items():
        click.echo(f"{name}: {reason}", err=True)
    sys.exit(1 if stale else 0)


if __name__ == "__main__":
    main(prog_name="python -m spinformer.chapters")
