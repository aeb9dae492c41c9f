"""`spinformer.dmft.kernels` once more, with 4 lanes: a system, or a few, in a twelfth of the time.

The same source gives the same bytes at either width. A second copy is needed, which takes seconds
to compile when it is first used, because machine instructions are for a fixed number of lanes.
"""

from typing import Any

from spinformer.dmft import kernels

LANES = 4
_loader: Any = kernels.__loader__
exec(_loader.get_code(kernels.__name__), globals())
