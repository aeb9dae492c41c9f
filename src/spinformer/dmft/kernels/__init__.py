"""Compiled mean-field steps, `LANES` independent systems side by side.

A step is a few hundred floating-point operations and P' + T transcendentals, so a system on its
own leaves the vector units idle. Every inner loop here runs over the lanes of a block and has no
branch, so that the compiler turns it into vector instructions; the loops around it take P, U, T
and K as they come, so there is one path for every network. `arithmetic` holds exp and tanh,
`lanes` sums, `stepping` the step, `letters` what takes the place of tanh where a site has more than
two values, `surveying` what is counted along an orbit, `tangent` the growth of small deviations,
`growing` that of a single one. A kernel takes what it needs of a `Block` of systems and a `Clock`,
and returns the clock moved on. Arrays have the lanes, W = `LANES` of them, on their last axis.

Determinism: see `arithmetic`. A lane's numbers depend neither on the number of lanes, blocks or
threads, nor on the processor.

The plain reference of a step is `spinformer.dmft.mean_field.step`.
"""

from spinformer.dmft.kernels.arithmetic import exp_array, fma, tanh_array
from spinformer.dmft.kernels.growing import grow
from spinformer.dmft.kernels.lanes import LANES
from spinformer.dmft.kernels.stepping import Block, Clock, advance, record, warm
from spinformer.dmft.kernels.surveying import Tally, smallest_period, survey
from spinformer.dmft.kernels.tangent import ROUNDING_LENGTH, ZERO_LENGTH, Frame, lyapunov, push

__all__ = [
    "LANES",
    "ROUNDING_LENGTH",
    "ZERO_LENGTH",
    "Block",
    "Clock",
    "Frame",
    "Tally",
    "advance",
    "exp_array",
    "fma",
    "grow",
    "lyapunov",
    "push",
    "record",
    "smallest_period",
    "survey",
    "tanh_array",
    "warm",
]
