"""Where the checkout is and under which public address it can be reached."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

# What a reader's browser or Colab can reach; a local path or a file:// remote is not.
_HTTPS = re.compile(r"^https://[\w.-]+\.[a-z]+/[\w.-]+/[\w.-]+$")
_SSH = re.compile(r"^(?:ssh://)?git@(?P<host>[\w.-]+)[:/](?P<path>[\w.-]+/[\w.-]+)$")
_BADGES = re.compile(r"(<!-- badges -->\n).*?(<!-- end of badges -->)", re.DOTALL)


def project_root(start: Path | None = None) -> Path:
    """Return the checkout: the first folder upwards of `start` that holds `_toc.yml`.

    Without `start`, looks from the working directory, then from this file.
    Raises FileNotFoundError outside of a checkout.
    """
    starts = [start] if start is not None else [Path.cwd(), Path(__file__)]
    for begin in starts:
        for folder in [begin.resolve(), *begin.resolve().parents]:
            if (folder / "_toc.yml").is_file() and (folder / "notebooks").is_dir():
                return folder
    raise FileNotFoundError("no checkout of the book here: expected a folder with _toc.yml")


def public_address(address: str) -> str:
    """Return `address` as https://host/owner/name, or "" if it is not a public one."""
    address = address.strip().removesuffix("/").removesuffix(".git")
    if match := _SSH.match(address):
        address = f"https://{match['host']}/{match['path']}"
    return address if _HTTPS.match(address) else ""


def repository_address(root: Path) -> str:
    """Return the public address of the repository, "" while it has none.

    The environment variable SPINFORMER_REPOSITORY wins over `[tool.spinformer] repository`
    in pyproject.toml, which wins over the git remote named origin.
    """
    configured = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    setting = configured.get("tool", {}).get("spinformer", {}).get("repository", "")
    for candidate in (os.environ.get("SPINFORMER_REPOSITORY", ""), setting):
        if candidate:
            return public_address(candidate)
    remote = subprocess.run(
        ["git", "-C", str(root), "remote", "get-url", "origin"],
        capture_output=True,
        text=True,
        check=False,
    )
    return public_address(remote.stdout) if remote.returncode == 0 else ""


def citation_text(text: str, address: str) -> str:
    """Return a CITATION.cff with `repository-code` set to `address`, without it for ""."""
    lines = [line for line in text.splitlines() if not line.startswith("repository-code:")]
    if address:
        lines.append(f"repository-code: {address}")
    return "\n".join(lines) + "\n"


def readme_text(text: str, address: str) -> str:
    """Return a README whose badges lead to `address`; none for "" or a host without them."""
    badges = ""
    if address.startswith("https://github.com/"):
        path = address.removeprefix("https://github.com/")
        status = f"{address}/actions/workflows/book.yml"
        badges = (
            f"[![tests]({status}/badge.svg)]({status})\n"
            f"[![Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
            f"(https://colab.research.google.com/github/{path})\n"
            f"[![Binder](https://mybinder.org/badge_logo.svg)]"
            f"(https://mybinder.org/v2/gh/{path}/main)\n"
        )
    return _BADGES.sub(lambda match: f"{match[1]}{badges}{match[2]}", text)
