"""Which regimes a network has, and where: the functions one needs for a network of one's own.

`orbit_diagram` follows a network along one parameter, `phase_diagram` over two. The result is a
`Diagram`, which `plot.orbits` draws and `Diagram.report` puts in words. `onset` says where the
disordered state of a network loses its stability, `cycle` and `follow_cycle` find a cycle and its
bifurcations, `rotation_number` how fast a closed curve is gone round; regimes are defined in
`attractors`, bifurcations in `continuation`. All but `onset` take any other `Map` with a step and
a tangent, too.
"""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import Any, Self

import numpy as np

from spinformer.core.checks import check_array, check_instance, check_integer, check_real
from spinformer.core.records import record
from spinformer.dmft import kernels
from spinformer.dmft.attractors import (
    BATCHES,
    SHORT_STRETCHES,
    Attractors,
    Regime,
    Thresholds,
    attractors_of,
    bump_weights,
    find_attractors,
)
from spinformer.dmft.attractors import rotation_number as rotation_number
from spinformer.dmft.continuation import Map as Map
from spinformer.dmft.continuation import cycle as cycle
from spinformer.dmft.continuation import follow_cycle as follow_cycle
from spinformer.dmft.continuation import onset as onset
from spinformer.dmft.lyapunov import ALIGN, average_growth
from spinformer.dmft.mean_field import random_contexts
from spinformer.dmft.network import AttentionNetwork, Context


@record
class Diagram(Attractors):
    """Attractors along one parameter, (..., n), or over two, (..., m, n).

    The fields of `Attractors`; a batch of starts comes first. Of a map `mean` is that of the
    state, and `histogram` counts a component of it.
    values: of the parameters that vary, by name, in the order of the axes: (m,) of the one drawn
    upwards, (n,) of the one drawn across. disordered: booleans, where β(1 − ε) is below the
    `onset` of the network; None for a map.
    """

    values: dict[str, np.ndarray]
    disordered: np.ndarray | None

    def select(self, index: Any) -> Self:
        """The values at `index` of a diagram along one parameter, from one start."""
        if self.regime.ndim != 1:
            raise ValueError(f"the diagram must have one axis, got {self.regime.ndim}")
        chosen = super().select(index)
        return replace(chosen, values={name: one[index] for name, one in self.values.items()})

    def report(self) -> str:
        """Shares of the regimes in words, and why a network rests where it does.

        >>> from spinformer.dmft.network import Network
        >>> network = Network(semantic=np.ones((4, 1, 1)), context=1, gamma=0.0)
        >>> sizes = {"transient": 500, "kept": 500, "exponent_steps": 100}
        >>> orbit_diagram(network, beta=[0.5, 2.0], **sizes).report()[:39]
        '2 orbits, beta 0.5 to 2: periodic 1.00.'
        """
        ends = [f"{name} {v.min():g} to {v.max():g}" for name, v in self.values.items()]
        shares = {one.label: float(np.mean(self.regime == one)) for one in Regime}
        told = [f"{name} {share:.2f}" for name, share in shares.items() if share]
        text = f"{self.regime.size} orbits, {', '.join(ends)}: {', '.join(told)}."
        if self.disordered is not None and self.disordered.any():
            text += (
                f" A share of {np.mean(self.disordered):.2f} lies below the onset of oscillation, "
                "where small overlaps die out and a network rests but for the drive of its "
                "positions. Overlaps of independent weights are of order N^-1/2, and put the onset "
                "at beta of order N^1/2."
            )
        return textwrap.fill(text, 100)


def orbit_diagram(
    system: AttentionNetwork | Map,
    start: Context | np.ndarray | None = None,
    *,
    transient: int = 100_000,
    kept: int = 20_000,
    exponent_steps: int = 10_000,
    exponents: int | None = None,
    observed: int = 0,
    plane: int | None = None,
    tolerance: float = 1e-3,
    bins: int = 1000,
    thresholds: Thresholds | None = None,
    threads: int | None = None,
    **parameters: float | np.ndarray,
) -> Diagram:
    """What a network, or any map, settles on along one parameter.

    start: a context (..., T, P), or states (..., n) of a map; None: one random context. parameters:
    by name, for a network `beta` and, if not its own, `gamma` and `epsilon`; one of them holds the
    n values, the others are numbers. exponents: None, two where there are as many. All else as in
    `attractors.find_attractors`; of a map `observed` and `plane` count the components. Raises
    TypeError or ValueError naming the argument.

    >>> from spinformer.dmft.network import Network
    >>> network = Network(semantic=np.ones((4, 1, 1)), context=1, gamma=0.0)
    >>> sizes = {"transient": 500, "kept": 500, "exponent_steps": 100}
    >>> found = orbit_diagram(network, beta=[0.5, 2.0], **sizes)
    >>> found.period, abs(found.mean[:, 0]).round(4), found.disordered
    (array([1, 1]), array([0.    , 0.9575]), array([ True, False]))
    """
    return _diagram(
        1, system, start, parameters, transient=transient, kept=kept, exponents=exponents,
        exponent_steps=exponent_steps, observed=observed, plane=plane, tolerance=tolerance,
        bins=bins, thresholds=thresholds, threads=threads,
    )  # fmt: skip


def phase_diagram(
    system: AttentionNetwork | Map,
    start: Context | np.ndarray | None = None,
    *,
    transient: int = 20_000,
    kept: int = 4_000,
    exponent_steps: int = 4_000,
    exponents: int | None = 1,
    thresholds: Thresholds = SHORT_STRETCHES,
    threads: int | None = None,
    **parameters: float | np.ndarray,
) -> Diagram:
    """What a network, or any map, settles on over two parameters; arguments as in `orbit_diagram`.

    Of the two parameters that hold values the one named first, (n,), runs across, the other, (m,),
    upwards: results are (..., m, n).

    >>> from spinformer.dmft.network import Network
    >>> network = Network(semantic=np.ones((4, 1, 1)), context=1, gamma=0.0)
    >>> found = phase_diagram(network, beta=[0.5, 2.0, 3.0], gamma=[0.0, 1.0], transient=100)
    >>> found.period.shape, list(found.values)
    ((2, 3), ['gamma', 'beta'])
    """
    return _diagram(
        2, system, start, parameters, transient=transient, kept=kept, exponents=exponents,
        exponent_steps=exponent_steps, bins=1, thresholds=thresholds, threads=threads,
    )  # fmt: skip


def _diagram(
    axes: int,
    system: AttentionNetwork | Map,
    start: Any,
    parameters: dict[str, Any],
    *,
    exponents: int | None,
    **options: Any,
) -> Diagram:
    if not isinstance(system, AttentionNetwork | Map):
        raise TypeError(f"system must be a network or a Map, got {system!r:.60}")
    given: dict[str, Any] = {name: check_array(name, v) for name, v in parameters.items()}
    varied = [name for name, value in given.items() if value.ndim][::-1]
    if len(varied) != axes or any(given[name].ndim > 1 or not given[name].size for name in varied):
        shapes = {name: value.shape for name, value in given.items()}
        raise ValueError(
            f"{axes} of the parameters must hold values, (n,), and the others be numbers, "
            f"got {shapes}"
        )
    values = {name: given[name] for name in varied}
    for place, name in enumerate(varied):
        given[name] = given[name].reshape(-1, *(1,) * (axes - 1 - place))
    if isinstance(system, Map):
        found, disordered = _follow_map(system, start, given, exponents, **options), None
    else:
        if not {"beta"} <= given.keys() <= {"beta", "gamma", "epsilon"}:
            raise TypeError(
                "parameters of a network must be beta and, if not its own, gamma and epsilon, "
                f"got {list(given)}"
            )
        context = random_contexts(system, 0, count=1).select(0) if start is None else start
        check_instance("start", context, Context)
        # The axes of the starts come first.
        spread = (*context.attention.shape[:-2], *(1,) * axes, *context.attention.shape[-2:])
        context = Context(context.attention.reshape(spread), context.position)
        count = min(2, system.context * system.features) if exponents is None else exponents
        found = find_attractors(system, context, exponents=count, **given, **options)
        gain = given["beta"] * (1.0 - given.get("epsilon", system.epsilon))
        disordered = np.broadcast_to(gain < onset(system).critical_beta, found.regime.shape)
    return Diagram(**vars(found), values=values, disordered=disordered)


def _follow_map(
    system: Map,
    start: Any,
    parameters: dict[str, np.ndarray],
    exponents: int | None,
    *,
    transient: int,
    kept: int,
    exponent_steps: int,
    bins: int,
    thresholds: Thresholds | None,
    observed: int = 0,
    plane: int | None = None,
    tolerance: float = 1e-3,
    **_threads: Any,
) -> Attractors:
    """`find_attractors` for any map, in NumPy, all orbits side by side."""
    limit = check_instance("thresholds", thresholds or Thresholds(), Thresholds)
    states = check_array("start", start)
    if states.ndim < 1 or not states.size:
        raise ValueError(f"start must hold states (..., n), got shape {states.shape}")
    size = states.shape[-1]
    transient = check_integer("transient", transient, low=0)
    kept = check_integer("kept", kept, low=2)
    bins = check_integer("bins", bins, low=1, high=2**16)
    steps = check_integer("exponent_steps", exponent_steps, low=BATCHES)
    count = check_integer(
        "exponents", min(2, size) if exponents is None else exponents, low=1, high=size
    )
    observed = check_integer("observed", observed, low=0, high=size - 1)
    plane = check_integer(
        "plane", min(1, size - 1) if plane is None else plane, low=0, high=size - 1
    )
    tolerance = check_real("tolerance", tolerance, low=0.0)
    grid = np.broadcast_shapes(*(value.shape for value in parameters.values()))
    batch = (*states.shape[:-1], *grid)
    x = np.broadcast_to(states.reshape(*states.shape[:-1], *(1,) * len(grid), size), (*batch, size))
    x = x.reshape(-1, size)
    own = {name: np.broadcast_to(value, batch).ravel() for name, value in parameters.items()}

    def following(x: np.ndarray, steps: int) -> np.ndarray:
        """The next states, (B, steps, n)."""
        orbit = np.empty((len(x), steps, size))
        for n in range(steps):
            x = orbit[:, n] = system.step(x, **own)
        return check_array("states returned by step", orbit)

    for _ in range(transient):
        x = check_array("states returned by step", system.step(x, **own), shape=x.shape)
    orbit = following(x, kept)
    tail = following(orbit[:, -1], 2 * limit.longest)
    halves = orbit[:, : kept // 2 * 2].reshape(len(x), 2, -1, size)
    seen, near = orbit[..., observed], np.abs(orbit[..., plane]) < tolerance
    low, high = float(seen.min()), float(seen.max())
    width = (high - low) or 1.0
    place = np.minimum((bins * (seen - low) / width).astype(int), bins - 1)
    x, lengths = tail[:, -1], np.diff(np.linspace(0, steps, BATCHES + 1).astype(int))
    frame = np.broadcast_to(
        np.linalg.qr(np.random.default_rng(0).normal(size=(size, count)))[0], (len(x), size, count)
    )
    growth = np.zeros((len(x), BATCHES + 1, count))
    for stretch, length in enumerate((ALIGN, *lengths)):
        for _ in range(length):
            frame, triangle = np.linalg.qr(system.tangent(x, **own) @ frame)
            size_of = np.abs(np.diagonal(triangle, axis1=1, axis2=2))
            growth[:, stretch] += np.log(np.maximum(size_of, kernels.ZERO_LENGTH)) / length
            x = system.step(x, **own)

    def spread(value: np.ndarray) -> np.ndarray:
        return value.reshape(*batch, *value.shape[1:])

    return attractors_of(
        spread(
            np.array([kernels.smallest_period(one, limit.longest, limit.distance) for one in tail])
        ),
        sums=spread(np.einsum("n,bhni->bhi", bump_weights(kept // 2), halves)),
        growth=average_growth(spread(growth[:, 1:]), lengths=lengths),
        thresholds=limit,
        mean=spread(np.einsum("n,bhni->bi", bump_weights(kept // 2) / 2, halves)),
        histogram=spread(np.array([np.bincount(one, minlength=bins) for one in place])),
        section=spread(
            np.array(
                [
                    np.bincount(one[mine], minlength=bins)
                    for one, mine in zip(place, near, strict=True)
                ]
            )
        ),
        span=(low, low + width),
        context=spread(x),
    )
