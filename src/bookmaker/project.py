"""Where the checkout is, under which public address it can be reached, and what the book lists."""

import tomllib
from pathlib import Path

import yaml

from bookmaker.errors import BookError


def project_root() -> Path:
    """Return the checkout around the working directory: the first folder that holds `_toc.yml`."""
    for folder in [Path.cwd(), *Path.cwd().parents, Path(__file__).resolve().parents[2]]:
        if (folder / "_toc.yml").is_file():
            return folder
    raise BookError("no checkout of the book here: expected a folder with _toc.yml")


def repository_address(root: Path) -> str:
    """Return the public address of the repository, "" while it has none.

    It is `Repository` of `[project.urls]` in pyproject.toml and nothing else: what is written
    into tracked files must not depend on the clone.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return str(project.get("project", {}).get("urls", {}).get("Repository", ""))


def contents(root: Path) -> list[tuple[str, list[str]]]:
    """Return the captions of the table of contents, each with the files below it."""
    listed = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    return [
        (part.get("caption", ""), [chapter["file"] for chapter in part.get("chapters", [])])
        for part in listed.get("parts", [listed])
    ]
