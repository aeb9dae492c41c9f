"""The book's chapters as programs: list them, run one with other parameters, rebuild the stale.

`source` turns a MyST file into a notebook, `meaning` and `freshness` know when a committed one is
stale, `parameters` and `conditions` read and check what papermill passes on, `execution` runs
notebooks, `page` shows one, `claims` connects the statements of the documents with the cells that
settle them, `checking` lists what a chapter lacks and `scaffold` begins one. The command line is
`python -m bookmaker`, or `bookmaker`; it needs the libraries of the extra `book`.
"""
