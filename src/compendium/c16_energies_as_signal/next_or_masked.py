"""One energy, trained to predict the next of n tokens or to reconstruct a masked one, exactly.

Tokens are x_i = ±1 with the energy −ln p(x) = −Σ_{i<j} J_ij x_i x_j − Σ_i b_i x_i + const, and M
texts are drawn from it. The same n(n + 1)/2 numbers are fitted by the cross-entropy of

    "next":   p(x_i | x_1..x_{i−1}) of this energy, where the future is summed out. The conditionals
              multiply to p(x): it is the likelihood,
    "masked": p(x_i | all others), whose normalization needs no sum: the pseudo-likelihood
              [besag1975statistical],
    "causal": σ(2 x_i (b_i + Σ_{j<i} J_ij x_j)), a network with a causal mask. It has no energy of
              this form, and n(n + 1)/2 numbers as well.

Criterion of A17b, written before its table: the two goals train the same energy equally well if the
Kullback–Leibler divergences of p from the fits to the next and to the masked token are within a
factor of two, by the mean of the logarithm of their ratio with its whole 95 % interval over texts.
Expected: they are for weak couplings, and masked tokens are worse for strong ones. A causal mask
loses where couplings are strong and texts many, because its conditionals have another form.
"""

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from bookmaker.tables import Rows, stored
from compendium.common.rows import mean_rows, near_rows, numbered, parameter_product
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.states import spin_states

GOALS = ("next", "masked", "causal")


def log_gibbs(couplings: np.ndarray, biases: np.ndarray) -> np.ndarray:
    """ln p(x) of all states for symmetric couplings without a diagonal."""
    states = spin_states(len(biases))
    weights = 0.5 * np.einsum("si,ij,sj->s", states, couplings, states) + states @ biases
    return weights - logsumexp(weights)


def conditional_logs(couplings: np.ndarray, biases: np.ndarray) -> np.ndarray:
    """ln σ(2 x_i (b_i + Σ_j J_ij x_j)) of all states and tokens: (2^n, n)."""
    states = spin_states(len(biases))
    return -np.logaddexp(0.0, -2.0 * states * (states @ couplings.T + biases))


def fitted_log_probabilities(goal: str, shares: np.ndarray, *, texts: int) -> np.ndarray:
    """ln p of all states for the best numbers; `shares` (2^n,) of the texts are in each state.

    A normal prior of unit width keeps the numbers finite.
    """
    tokens = int(np.log2(len(shares)))
    states = spin_states(tokens)
    lower = np.tril_indices(tokens, -1)

    def unpacked(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        couplings = np.zeros((tokens, tokens))
        couplings[lower] = theta[tokens:]
        return (couplings if goal == "causal" else couplings + couplings.T), theta[:tokens]

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        couplings, biases = unpacked(theta)
        if goal == "next":
            logs = log_gibbs(couplings, biases)
            excess = np.exp(logs) - shares
            by_bias = excess @ states
            by_pair = (states * excess[:, None]).T @ states
            value = -float(shares @ logs)
        else:
            logs = conditional_logs(couplings, biases)
            pull = -2.0 * shares[:, None] * states * (1.0 - np.exp(logs))
            by_bias = pull.sum(0)
            by_pair = pull.T @ states
            if goal == "masked":
                by_pair = by_pair + by_pair.T
            value = -float(shares @ logs.sum(1))
        slope = np.concatenate([by_bias, by_pair[lower]])
        return value + 0.5 * float(theta @ theta) / texts, slope + theta / texts

    best = minimize(loss, np.zeros(tokens + len(lower[0])), jac=True, method="L-BFGS-B")
    couplings, biases = unpacked(best.x)
    if goal == "causal":
        return conditional_logs(couplings, biases).sum(1)
    return log_gibbs(couplings, biases)


def divergences(
    kind: str, *, tokens: int, strength: float, texts: int, seed: Seed
) -> tuple[float, ...]:
    """Kullback–Leibler divergence of p from its fits by each of `GOALS`."""
    rng = numpy_generator(seed)
    half = np.tril(rng.standard_normal((tokens, tokens)) / tokens**0.5, -1)
    if kind == "equal":
        half = np.tril(np.full((tokens, tokens), 1.0 / tokens), -1)
    biases = 0.3 * rng.standard_normal(tokens)
    true = log_gibbs(strength * (half + half.T), biases)
    shares = rng.multinomial(texts, np.exp(true)) / texts
    return tuple(
        float(np.exp(true) @ (true - fitted_log_probabilities(goal, shares, texts=texts)))
        for goal in GOALS
    )


@stored(
    "settings_A17b",
    numbered(
        parameter_product(
            kind=("random", "equal"), tokens=(5, 7), strength=(0.3, 1.0, 2.0), texts=(100, 2000)
        )
    ),
    seconds=1.0,
    rtol=1e-2,
)
def settings_a17b(data: int, kind: str, tokens: int, strength: float, texts: int) -> Rows:
    """ln 2 minus the distance from zero of the mean logarithm of masked over next, ten texts.

    `ratio` is this mean, and the other columns are geometric means of the divergences.
    """
    found = np.log(
        [
            divergences(kind, tokens=tokens, strength=strength, texts=texts, seed=100 * data + k)
            for k in range(10)
        ]
    )
    (mean,) = mean_rows(found[:, 1] - found[:, 0])
    measured = (mean["value"], mean["low"], mean["high"])
    (line,) = near_rows(measured, aim=0.0, within=float(np.log(2.0)), runs=10)
    levels = dict(zip(GOALS, np.exp(found.mean(0)), strict=True))
    return [line | {"ratio": mean["value"]} | levels]
