"""The first cell of a chapter installs the package where it is missing, and only there."""

import os
import subprocess
import sys
import sysconfig
import venv

import pytest

from bookmaker.source import _INSTALL

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a POSIX environment is laid out")
SCRIPT = """\
import importlib.util
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
before = importlib.util.find_spec("spinformer") is not None
result = shell.run_cell({source!r})
importlib.invalidate_caches()
print(before, result.success, importlib.util.find_spec("spinformer") is not None)
"""


def run_cell(folder, address):
    """Run the install cell in `folder` with every library at hand except the package."""
    environment = folder / "environment"
    venv.create(environment, with_pip=False, symlinks=True)
    python = environment / "bin" / "python"
    site = next((environment / "lib").glob("python*")) / "site-packages"
    # A path listed here is not searched for path files of its own, so the libraries of this
    # environment are visible and its editable install of the package is not.
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "SPINFORMER_REPOSITORY": address,
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_NO_INDEX": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
    }
    command = [str(python), "-c", SCRIPT.format(source=_INSTALL.replace("ADDRESS", ""))]
    out = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.run(command, cwd=folder, env=variables, timeout=300, **out).stdout


@pytest.mark.nightly
def test_installs_from_a_git_address(root, tmp_path):
    if not (root / ".git").exists():
        pytest.skip("installing from git needs a git checkout of the book")
    text = run_cell(tmp_path, f"file://{root}")
    assert text.strip().endswith("False True True"), text


def test_says_what_to_do_while_there_is_no_address(tmp_path):
    text = run_cell(tmp_path, "")
    assert "spinformer is missing: run `pip install '.[chapters]'` in its checkout" in text
    assert text.strip().endswith("False False False"), text
