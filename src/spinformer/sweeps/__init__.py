"""Many units of work: computed here or by Dask's workers, each once, whatever is killed.

`engine` computes a function of many units and gives the results as they end, `store` keeps what
is finished in a file that one process at a time may write to, and `files` writes files that nobody
sees half of. The stored tables of `studies` and `python -m spinformer.chapters sweep` stand on
them. Nothing here needs torch or SciPy: to find that a sweep is finished takes no second.
"""

from spinformer.sweeps.engine import Lost, Outcome, SweepError, Workers, stream, sweep
from spinformer.sweeps.files import write_atomically
from spinformer.sweeps.store import Store, StoreError, read_store

__all__ = [
    "Lost",
    "Outcome",
    "Store",
    "StoreError",
    "SweepError",
    "Workers",
    "read_store",
    "stream",
    "sweep",
    "write_atomically",
]
