"""Many units of work: computed here or by Dask's workers, each once, whatever is killed.

`engine` computes a function of many units and gives the results as they end, `store` keeps what
is finished, a file for each unit. The stored tables of the chapters and `python -m bookmaker
sweep` stand on them. Nothing here needs torch or SciPy: to find that a sweep is finished takes no
second.
"""
