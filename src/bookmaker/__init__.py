"""The book's chapters as programs: list them, run one with other parameters, rebuild the stale.

`source` turns a MyST file into a notebook, `meaning` and `freshness` know when a committed one is
stale, `parameters` and `conditions` read and check what papermill passes on, `execution` runs
notebooks, `page` shows one, `claims` connects the statements of the documents with the cells that
settle them, `checking` lists what a chapter lacks and `scaffold` begins one. The command line is
`python -m bookmaker`, or `bookmaker`.
"""

from __future__ import annotations

import sys


def command() -> None:
    """Run the command line, or say how to install what it needs."""
    try:
        from bookmaker.__main__ import main
    except ModuleNotFoundError as error:
        sys.exit(
            f"{error.name} is missing: the chapters need `pip install 'spinformer[book]'`, in a "
            "checkout `pip install '.[book]'`"
        )
    main()
