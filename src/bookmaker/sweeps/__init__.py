"""Many units of work: computed here or by Dask's workers, each once, whatever is killed.

The stored tables of the chapters and `python -m bookmaker sweep` stand on `engine`. Nothing here
needs torch or SciPy: to find that a sweep is finished takes no second.
"""
