"""Where the checkout is and under which public address it can be reached."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

from bookmaker.errors import ChapterError

# What a reader's browser or Colab can reach; a local path or a file:// remote is not.
_HTTPS = re.compile(r"^https://[\w.-]+\.[a-z]+/[\w.-]+/[\w.-]+$")
_SSH = re.compile(r"^(?:ssh://)?git@(?P<host>[\w.-]+)[:/](?P<path>[\w.-]+/[\w.-]+)$")


def project_root() -> Path:
    """Return the checkout: the first folder upwards that holds `_toc.yml`.

    Looks from the working directory, then from this file; ChapterError outside of a checkout.
    """
    for begin in (Path.cwd(), Path(__file__)):
        for folder in [begin.resolve(), *begin.resolve().parents]:
            if (folder / "_toc.yml").is_file() and (folder / "notebooks").is_dir():
                return folder
    raise ChapterError("no checkout of the book here: expected a folder with _toc.yml")


def public_address(address: str) -> str:
    """Return `address` as https://host/owner/name, or "" if it is not a public one."""
    address = address.strip().removesuffix("/").removesuffix(".git")
    if match := _SSH.match(address):
        address = f"https://{match['host']}/{match['path']}"
    return address if _HTTPS.match(address) else ""


def repository_address(root: Path) -> str:
    """Return the public address of the repository, "" while it has none.

    It is `Repository` of `[project.urls]` in pyproject.toml and nothing else: what is written
    into tracked files must not depend on the clone. ChapterError for an address that no reader
    could reach.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    setting = project.get("project", {}).get("urls", {}).get("Repository", "")
    address = public_address(setting)
    if setting and not address:
        raise ChapterError(
            f"pyproject.toml: Repository must read https://host/owner/name, got {setting!r}"
        )
    return address


def published_address(root: Path) -> str:
    """Return the address that links on built pages lead to.

    The environment variable SPINFORMER_REPOSITORY wins over `repository_address`.
    """
    chosen = os.environ.get("SPINFORMER_REPOSITORY")
    return repository_address(root) if chosen is None else public_address(chosen)


def contents(root: Path) -> list[tuple[str, list[str]]]:
    """Return the captions of the table of contents, each with the files below it."""

    def files(entries: list[dict[str, Any]]) -> list[str]:
        return [f for e in entries for f in (e.get("file", ""), *files(e.get("sections", [])))]

    listed = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    parts = listed.get("parts", [])
    return [(part.get("caption", ""), files(part.get("chapters", []))) for part in parts]
