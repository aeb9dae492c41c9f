"""Linear stability of the disordered state of a network: onset of order, and its rotation number.

At ε = 0 the window A = 0 is a fixed point for every β. To first order in A a token has m^v = β C A
with C = ⟨W^v W^{o⊤}⟩ (`Network.pair_correlations`). The change of the softmax multiplies values
that are small themselves, so that γ drops out, and a step is

    δA' = (β/T) C Σ_{s<T} δA_s .

Along an eigenvector of C with eigenvalue μ, δA ∝ z^t gives z^T = (βμ/T) Σ_{s<T} z^s. With
z = e^{iθ} the sum is e^{iθ(T−1)/2} sin(Tθ/2)/sin(θ/2), so that the phase of the equation gives
θ = 2φ/(T+1), φ = arg μ, and its modulus gives

    β = (T/|μ|) sin(φ/(T+1)) / sin(Tφ/(T+1)) ,

from `1/|μ|` for μ > 0 (the state magnetizes) to `T/|μ|` for μ < 0 (a rotation with a period of T +
1 tokens). Other roots of the phase, θ = 2(φ + kπ)/(T+1), reach `|z| = 1` at larger β: there
`|μ|β/T` is 1/(sin φ cot(θ/2) − cos φ), where it is positive at all, and cot falls with θ.

This is the linearization of [poclopez2024dynamical, Eqs. (13)-(16)]; the paper gives no such
formula.
"""

import numpy as np

from spinformer.core.checks import check_instance, check_real
from spinformer.core.records import record
from spinformer.dmft.network import OUTPUT, VALUE, AttentionNetwork

# Singular values of ⟨W^v W^o⟩ below this share of what they could be are rounding.
_SINGULAR = 1e-12


@record
class Onset:
    """Instabilities of the disordered state, one for each eigenvalue of ⟨W^v W^o⟩.

    They are sorted by β, the earliest first.

    Attributes
    ----------
    mu : ndarray of complex, shape (P,)
        Eigenvalues μ of ⟨W^v W^o⟩.
    beta : ndarray, shape (P,)
        Critical inverse temperature at which each mode reaches the modulus 1; infinite for μ = 0.
    rotation : ndarray, shape (P,)
        Rotation number there, in turns per token, in [0, 1/(T + 1)]; 0 where the state magnetizes.
    """

    mu: np.ndarray
    beta: np.ndarray
    rotation: np.ndarray

    @property
    def critical_beta(self) -> float:
        """Critical inverse temperature, above which the disordered state is unstable."""
        return float(self.beta[0])

    @property
    def critical_rotation(self) -> float:
        """Rotation number of the first instability, in turns per token."""
        return float(self.rotation[0])


def onset(network: AttentionNetwork, *, epsilon: float | None = None) -> Onset:
    r"""Compute critical β and rotation number of the instabilities of the disordered state.

    With ε > 0 the result is exact only if γ = 0 and T is a multiple of 2^K, because the positions
    in a window then average to zero. Otherwise the positions drive the state, and the true onset is
    the bifurcation of a cycle of 2^K steps.

    Parameters
    ----------
    network : AttentionNetwork
        The network.
    epsilon : float, optional
        Weight ε of the position, in [0, 1); None takes that of the network. The gain of a token is
        (1 − ε)β, so that the critical β is divided by 1 − ε.

    Returns
    -------
    Onset
        Eigenvalues, critical inverse temperatures and rotation numbers, sorted by β.

    Raises
    ------
    TypeError
        If `network` is of another class.
    ValueError
        If `epsilon` is not in [0, 1).

    Notes
    -----
    The mode of an eigenvalue μ with the argument φ becomes unstable at

    .. math::

        \beta_c = \frac{T}{|\mu|}\, \frac{\sin(\varphi/(T+1))}{\sin(T\varphi/(T+1))},
        \qquad \text{rotation number } \frac{|\varphi|}{\pi (T+1)}.

    References
    ----------
    Linearization of [poclopez2024dynamical, Eqs. (13)-(16)].

    Examples
    --------
    >>> from spinformer.dmft.network import Network
    >>> found = onset(Network.poclopez2024(), epsilon=0.0)
    >>> f"{found.critical_beta:.5f} {found.critical_rotation:.5f}"
    '1.22124 0.05888'
    """
    check_instance("network", network, AttentionNetwork)  # type: ignore[type-abstract]
    epsilon = network.epsilon if epsilon is None else check_real("epsilon", epsilon, low=0.0)
    if epsilon >= 1.0:
        raise ValueError(f"epsilon must be a number in [0, 1), got {epsilon}")
    least = _SINGULAR * network.overlap_bound[VALUE].max() * network.overlap_bound[OUTPUT].max()
    mu = _eigenvalues(network.pair_correlations(VALUE, OUTPUT), least=float(least))
    size = np.abs(mu)
    turn = np.abs(np.angle(mu)) / (network.context + 1)
    # sin x / sin Tx through sinc, which knows its limit 1/T at x = 0.
    ratio = np.sinc(turn / np.pi) / np.sinc(network.context * turn / np.pi)
    with np.errstate(divide="ignore"):
        beta = ratio / (size * (1.0 - epsilon))
    order = np.argsort(beta, kind="stable")
    rotation = np.where(size > 0.0, turn / np.pi, 0.0)
    return Onset(mu=mu[order], beta=beta[order], rotation=rotation[order])


def _eigenvalues(matrix: np.ndarray, *, least: float) -> np.ndarray:
    """Eigenvalues of a square matrix, those that vanish as exact zeros.

    Rounding moves a zero of multiplicity k by its k-th root, so the matrix is restricted to its
    range, which holds all other eigenvalues, until it is regular.
    """
    size = len(matrix)
    while len(matrix):
        basis, lengths, _ = np.linalg.svd(matrix)
        rank = int((lengths > least).sum())
        if rank == len(matrix):
            break
        matrix = basis[:, :rank].T @ matrix @ basis[:, :rank]
    mu = np.zeros(size, dtype=complex)
    mu[: len(matrix)] = np.linalg.eigvals(matrix)
    return mu
