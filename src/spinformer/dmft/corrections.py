"""Finite-size corrections to the mean field: variance, 1/N shift, and a Gaussian closure.

Along a mean-field path the deviation δx of a text of N bits obeys, to first order,
δx_{t+1} = Σ_s M_{t,s} δx_{t−s} + ξ_{t+1} (`finite_size.linear_maps`), ξ the binomial noise of the
new token. Its covariance is of order 1/N, and so is the shift of the average text, which the
curvature of the step makes. The *onset* is the size from which on the linear law misses at most a
tenth of the deviation of a text.

`path` (T + steps, L) is that of `finite_size.mean_path`, its first T tokens drawn with N bits, too;
`maps` are its `linear_maps`. Windows and paths run from old to new.
"""

from functools import cache

import numpy as np
from scipy.special import ndtri

from spinformer.core.checks import (
    check_array,
    check_flag,
    check_instance,
    check_integer,
    check_real,
)
from spinformer.core.records import record
from spinformer.dmft.finite_size import (
    TokenRuns,
    linear_maps,
    mean_path,
    semantic_overlaps,
    window_means,
)
from spinformer.dmft.mean_field import attend
from spinformer.dmft.network import LARGEST, Network

# Step of a second difference, small beside one over the steepness of attention.
_STEP = 3e-5
# Half the number of nodes of a Gaussian average, a power of two.
_HALF = 512
# The onset is where N misses a tenth: 300 |b|²/σ² with the shift b/N and the deviation σ/√N.
_MISSED_TENTH = 300.0


@record
class FiniteSizeCorrections:
    """Mean-field path after a window, and what texts of N bits do around it to leading order.

    Attributes
    ----------
    network : Network
        The network.
    beta : float
        Inverse temperature β of the tokens.
    position : int
        Position of the newest token of the window.
    path : ndarray, shape (T + steps, L)
        Segment means of the mean-field path, the window first.
    maps : ndarray, shape (steps, T, L, L)
        Its tangent maps, as `linear_maps` gives them.
    sigma : ndarray, shape (T + steps,)
        √N times the root mean square deviation of the overlaps of a single text.
    shift : ndarray, shape (T + steps, P)
        N times the deviation of the overlaps of the average text.
    """

    network: Network
    beta: float
    position: int
    path: np.ndarray
    maps: np.ndarray
    sigma: np.ndarray
    shift: np.ndarray

    def mean(self, size: int) -> np.ndarray:
        """Compute the overlaps of the average text of N bits, to order 1/N.

        Parameters
        ----------
        size : int
            Number N of bits.

        Returns
        -------
        ndarray, shape (T + steps, P)
            Semantic overlaps m^o with their factor 1 − ε.

        Raises
        ------
        ValueError
            If `size` is below 1.
        """
        size = check_integer("size", size, low=1)
        return semantic_overlaps(self.network, self.path) + self.shift / size

    def deviation(self, size: int) -> np.ndarray:
        """Compute the root mean square deviation of a single text of N bits, to order N^{−1/2}.

        Parameters
        ----------
        size : int
            Number N of bits.

        Returns
        -------
        ndarray, shape (T + steps,)
            Root mean square of |m − m_∞|.

        Raises
        ------
        ValueError
            If `size` is below 1.
        """
        size = check_integer("size", size, low=1)
        return np.asarray(self.sigma / np.sqrt(size))

    def onset(self) -> np.ndarray:
        """Compute the size from which on the linear law misses at most a tenth.

        Returns
        -------
        ndarray, shape (T + steps,)
            300 |b|²/σ², with b the shift and σ the deviation times their powers of N.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.linalg.norm(self.shift, axis=1) / self.sigma
            return np.asarray(_MISSED_TENTH * np.square(ratio))


def finite_size_corrections(
    network: Network, beta: float, *, window: np.ndarray, steps: int, position: int
) -> FiniteSizeCorrections:
    r"""Compute the mean-field path after a window, with its variance and 1/N shift.

    The window is drawn with N bits, too.

    Parameters
    ----------
    network : Network
        The network.
    beta : float
        Inverse temperature β of the tokens.
    window : ndarray, shape (T, L)
        Segment means of the initial tokens, the oldest first, as `window_of_context` gives them.
    steps : int
        Number of new tokens.
    position : int
        Position of the newest token of the window.

    Returns
    -------
    FiniteSizeCorrections
        The path, √N times the deviation of a text and N times the shift of the average text.

    Raises
    ------
    TypeError
        If `network` is not a `Network`.
    ValueError
        If `window` does not have the shape (T, L), or an argument is out of its range.

    Notes
    -----
    With the curvature H of a step and the covariance of a window, the shift obeys

    .. math::

        \langle \delta x_{t+1} \rangle = M \langle \delta x \rangle
            + \tfrac12 \sum H \langle \delta x\, \delta x \rangle .

    Examples
    --------
    >>> found = finite_size_corrections(
    ...     Network.poclopez2024(), 1.2, window=np.zeros((4, 3)), steps=8, position=3
    ... )
    >>> found.mean(300).shape, found.deviation(300).shape
    ((12, 3), (12,))
    """

    steps = check_integer("steps", steps, low=1)
    path = mean_path(network, beta, window=window, steps=steps, position=position)
    maps = linear_maps(network, beta, path=path, position=position)
    shift = mean_shift(network, beta, path=path, maps=maps, position=position)
    return FiniteSizeCorrections(
        network=network,
        beta=beta,
        position=position,
        path=path,
        maps=maps,
        sigma=predicted_rms(network, noise_covariance(network, path, maps=maps)),
        shift=semantic_overlaps(network, shift),
    )


def next_means(network: Network, windows: np.ndarray, *, beta: float, position: int) -> np.ndarray:
    """Compute the mean next token after windows whose tokens may leave [−1, 1].

    Parameters
    ----------
    network : Network
        The network.
    windows : ndarray, shape (..., T, L)
        Segment means of the last T tokens, the oldest first.
    beta : float
        Inverse temperature β of the tokens.
    position : int
        Position of the newest token.

    Returns
    -------
    ndarray, shape (..., L)
        Mean tokens.

    Raises
    ------
    TypeError
        If `network` is not a `Network`.
    ValueError
        If `windows` has another shape, or an argument is out of its range.

    Examples
    --------
    >>> next_means(Network.poclopez2024(), np.zeros((5, 4, 3)), beta=1.2, position=3).shape
    (5, 3)
    """
    check_instance("network", network, Network)
    shape = (..., network.context, network.segments)
    windows = check_array("windows", windows, shape=shape, low=-LARGEST, high=LARGEST)
    position = check_integer("position", position)

    overlaps = np.einsum("ral,...l->...ra", network.semantic * network.fractions, windows)
    m = network.with_position_code(overlaps, position + np.arange(1 - network.context, 1))
    return window_means(network, beta, attention=attend(m, gamma=network.gamma, newest=-1))


def window_covariances(network: Network, path: np.ndarray, *, maps: np.ndarray) -> np.ndarray:
    """Compute N times the covariance of the whole window along a path, of linear noise.

    Parameters
    ----------
    network : Network
        The network.
    path : ndarray, shape (T + steps, L)
        Segment means of the mean-field path.
    maps : ndarray, shape (steps, T, L, L)
        Its tangent maps.

    Returns
    -------
    ndarray, shape (steps + 1, T·L, T·L)
        Covariances of the tokens of the window, the newest first.

    Raises
    ------
    TypeError
        If `network` is not a `Network`.
    ValueError
        If `path` or `maps` has another shape.

    Examples
    --------
    >>> machine = Network.poclopez2024()
    >>> path = mean_path(machine, 1.2, window=np.zeros((4, 3)), steps=2)
    >>> window_covariances(machine, path, maps=linear_maps(machine, 1.2, path=path)).shape
    (3, 12, 12)
    """
    path, maps = _checked_path(network, path, maps)

    context = network.context
    segments = network.segments
    noise = (1.0 - path**2) / network.fractions
    step = np.eye(context * segments, k=-segments)
    result = [np.diag(noise[:context][::-1].ravel())]
    for new, matrices in zip(noise[context:], maps, strict=True):
        step[:segments] = matrices.transpose(1, 0, 2).reshape(segments, -1)
        result.append(step @ result[-1] @ step.T)
        result[-1][:segments, :segments] += np.diag(new)
    return np.array(result)


def noise_covariance(network: Network, path: np.ndarray, *, maps: np.ndarray) -> np.ndarray:
    """Compute N times the covariance of every token along a path, of linear noise.

    Parameters
    ----------
    network : Network
        The network.
    path : ndarray, shape (T + steps, L)
        Segment means of the mean-field path.
    maps : ndarray, shape (steps, T, L, L)
        Its tangent maps.

    Returns
    -------
    ndarray, shape (T + steps, L, L)
        Covariances of the segment means.

    Raises
    ------
    TypeError
        If `network` is not a `Network`.
    ValueError
        If `path` or `maps` has another shape.

    Examples
    --------
    >>> machine = Network.poclopez2024()
    >>> path = mean_path(machine, 1.2, window=np.zeros((4, 3)), steps=2)
    >>> noise_covariance(machine, path, maps=linear_maps(machine, 1.2, path=path)).shape
    (6, 3, 3)
    """
    joint = window_covariances(network, path, maps=maps)
    segments = network.segments
    older = (1.0 - path[: network.context - 1] ** 2) / network.fractions
    return np.array([*map(np.diag, older), *joint[:, :segments, :segments]])


def mean_shift(
    network: Network, beta: float, *, path: np.ndarray, maps: np.ndarray, position: int
) -> np.ndarray:
    """Compute N times the deviation of the mean token from the path, exact for N → ∞.

    Parameters
    ----------
    network : Network
        The network.
    beta : float
        Inverse temperature β of the tokens.
    path : ndarray, shape (T + steps, L)
        Segment means of the mean-field path.
    maps : ndarray, shape (steps, T, L, L)
        Its tangent maps.
    position : int
        Position of the newest token of the first window.

    Returns
    -------
    ndarray, shape (T + steps, L)
        The shift of the segment means.

    Raises
    ------
    TypeError
        If `network` is not a `Network`.
    ValueError
        If `path` or `maps` has another shape, or an argument is out of its range.

    Examples
    --------
    >>> machine = Network.poclopez2024()
    >>> path = mean_path(machine, 1.2, window=np.zeros((4, 3)), steps=2)
    >>> maps = linear_maps(machine, 1.2, path=path)
    >>> mean_shift(machine, 1.2, path=path, maps=maps, position=3).shape
    (6, 3)
    """
    path, maps = _checked_path(network, path, maps)
    beta = check_real("beta", beta, low=0.0, high=LARGEST)
    position = check_integer("position", position)

    context = network.context
    shift = np.zeros_like(path)
    joint = window_covariances(network, path, maps=maps)
    for t, matrices in enumerate(maps):
        window = path[t : t + context]
        # Second differences along the principal axes of the covariance.
        size, turn = np.linalg.eigh(joint[t])
        away = _STEP * turn.T.reshape(-1, *window.shape)[:, ::-1]
        ways = np.array([window + away, window - away])
        around = next_means(network, ways, beta=beta, position=position + t)
        bend = size @ (around.sum(axis=0) - 2.0 * path[context + t]) / _STEP**2
        older = shift[t : t + context][::-1]
        shift[context + t] = np.einsum("slm,sm->l", matrices, older) + 0.5 * bend
    return shift


def linear_fluctuations(runs: TokenRuns, *, maps: np.ndarray) -> np.ndarray:
    """Compute the first-order deviation of sampled texts, each driven by its own noise.

    Parameters
    ----------
    runs : TokenRuns
        Sampled texts.
    maps : ndarray, shape (steps, T, L, L)
        Tangent maps of the mean-field path that they follow.

    Returns
    -------
    ndarray, shape (R, T + steps, L)
        Deviations of the segment means.

    Raises
    ------
    TypeError
        If `runs` is of another class.
    ValueError
        If `maps` has another shape.
    """
    check_instance("runs", runs, TokenRuns)
    _, maps = _checked_path(runs.network, runs.tokens[0], maps)

    context = runs.network.context
    result = runs.tokens - runs.means
    for t, matrices in enumerate(maps):
        older = result[:, t : t + context][:, ::-1]
        result[:, context + t] += np.einsum("slm,rsm->rl", matrices, older)
    return result


def predicted_rms(network: Network, covariance: np.ndarray) -> np.ndarray:
    """Compute √N times the root mean square deviation of the overlaps, of linear noise.

    Parameters
    ----------
    network : Network
        The network.
    covariance : ndarray, shape (..., L, L)
        N times the covariance of the segment means.

    Returns
    -------
    ndarray, shape (...)
        Root mean square of √N |m − m_∞|.

    Raises
    ------
    TypeError
        If `network` is not a `Network`.
    ValueError
        If `covariance` has another shape.

    Examples
    --------
    >>> predicted_rms(Network.poclopez2024(), np.zeros((5, 3, 3)))
    array([0., 0., 0., 0., 0.])
    """
    check_instance("network", network, Network)
    size = network.segments
    covariance = check_array("covariance", covariance, shape=(..., size, size))

    pattern = semantic_overlaps(network, np.eye(network.segments)).T
    return np.sqrt(np.einsum("al,...lm,am->...", pattern, covariance, pattern))


def gaussian_closure(
    corrections: FiniteSizeCorrections, size: int, *, independent: bool = False
) -> np.ndarray:
    r"""Compute the mean text of N bits by a Gaussian closure of the moments of a window.

    Parameters
    ----------
    corrections : FiniteSizeCorrections
        A mean-field path, of which window, β and positions are taken.
    size : int
        Number N of bits.
    independent : bool, default False
        Whether the bits of a window count as independent, with the variance 1 − m² each. This is
        the Gaussian mean field of kinetic Ising models [mezard2011exact], which to first order in
        1/N is also their second-order Plefka expansion.

    Returns
    -------
    ndarray, shape (T + steps, L)
        Means of the tokens.

    Raises
    ------
    TypeError
        If `corrections` is of another class.
    ValueError
        If the segments do not hold whole numbers of `size` bits.

    Notes
    -----
    With f the mean of the next token x after a window w of Gaussian segment means, and n bits in a
    segment, the next Gaussian has

    .. math::

        \langle x \rangle = \langle f \rangle, \quad \mathrm{Cov}(x, w) = \mathrm{Cov}(f, w),
        \quad \mathrm{Cov}(x, x) = \mathrm{Cov}(f, f) + \langle 1 - f^2 \rangle / n .

    References
    ----------
    [aguilera2021unifying]

    [mezard2011exact]

    Examples
    --------
    >>> found = finite_size_corrections(
    ...     Network.poclopez2024(), 1.2, window=np.zeros((4, 3)), steps=3, position=3
    ... )
    >>> gaussian_closure(found, 300).shape
    (7, 3)
    """
    limit = check_instance("corrections", corrections, FiniteSizeCorrections)
    independent = check_flag("independent", independent)

    network = limit.network
    window = limit.path[: limit.network.context]
    segments = network.segments
    bits = network.counts(size)
    normal = _nodes(window.size)
    path = list(window)
    covariance = np.diag(((1.0 - window**2) / bits).ravel())
    for start in range(len(limit.path) - len(window)):
        if independent:
            covariance = np.diag(((1.0 - np.array(path[start:]) ** 2) / bits).ravel())
        level, turn = np.linalg.eigh(covariance)
        away = normal @ (turn * np.sqrt(np.maximum(level, 0.0))).T
        windows = path[start:] + away.reshape(-1, *window.shape)
        answer = next_means(network, windows, beta=limit.beta, position=limit.position + start)
        path.append(answer.mean(axis=0))
        spread = answer - path[-1]
        own = spread.T @ spread / len(away) + np.diag((1.0 - answer**2).mean(axis=0) / bits)
        across = (spread.T @ away / len(away))[:, segments:]
        covariance = np.block([[covariance[segments:, segments:], across.T], [across, own]])
    return np.array(path)


@cache
def _nodes(dimension: int) -> np.ndarray:
    """Sobol points made normal and their mirror images, mean zero and covariance one exactly."""
    # Moved by half a cell: the first point would be at minus infinity. No random numbers.
    from scipy.stats import qmc  # takes a second, which all that imports would pay

    half = ndtri(qmc.Sobol(dimension, scramble=False).random(_HALF) + 0.5 / _HALF)
    points = np.concatenate([half, -half])
    level, turn = np.linalg.eigh(points.T @ points / len(points))
    return points @ (turn / np.sqrt(level)) @ turn.T


def _checked_path(
    network: Network, path: np.ndarray, maps: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A path (T + steps, L) and its tangent maps (steps, T, L, L)."""
    check_instance("network", network, Network)
    path = check_array("path", path, shape=(None, network.segments), low=-1.0, high=1.0)
    steps = check_integer("steps of path", len(path) - network.context, low=0)
    shape = (steps, network.context, network.segments, network.segments)
    return path, check_array("maps", maps, shape=shape)
