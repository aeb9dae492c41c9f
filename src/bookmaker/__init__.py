"""The book's chapters as programs: list them, run one with other parameters, rebuild the stale.

`source` turns a MyST file into a notebook and knows when a committed one is stale, `parameters`
reads and checks what papermill passes on, `execution` runs notebooks and shows one as a page,
`claims` connects the statements of the documents with the cells that decide them, `checking` lists
what a chapter lacks and begins one, `frame` makes what stands around them. The command line is
`python -m bookmaker`, or `bookmaker` (`command`); it needs the libraries of the extra `book`.
"""
