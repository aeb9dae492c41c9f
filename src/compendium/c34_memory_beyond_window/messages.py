"""What is left of a message in later windows: by linear noise, and from sampled texts.

A message draws the newest token with means x ± s D^{1/2} e: D = (1 − x²)/f is N times the variance
of its own noise, e a unit vector over the L segments, s the *strength*. Of the window's n = T·L
deviations, of covariance C/N, k tokens later, Fisher information about it is N |B_k e|² with
B_k = C_k^{-1/2} Φ_k D^{1/2} [ganguli2008memory, Eq. (3)], which orthogonal factors take along: no
covariance is inverted, which chaos would make impossible.

Conventions of `finite_size`: maps (steps, T, L, L) with the axis s counting back, noise
(T + steps, L) from old to new.
"""

from collections.abc import Callable, Iterator

import numpy as np
from scipy.special import entr, ndtr, rel_entr

from spinformer.core.random import Seed, numpy_generator
from spinformer.dmft.finite_size import generate, linear_maps, mean_path
from spinformer.dmft.network import OUTPUT, Network


def token_noise(network: Network, path: np.ndarray) -> np.ndarray:
    """N times the variance of the noise of every token of a path (..., L) of segment means."""
    return (1.0 - path**2) / network.fractions


def fisher_memory(maps: np.ndarray, *, noise: np.ndarray) -> np.ndarray:
    """B_k of the newest token of the first window after k = 0, 1, … steps: (steps + 1, n, L)."""
    size = maps.shape[1] * maps.shape[2]
    followed = [np.eye(size)[:, : maps.shape[2]]]
    for _, orthogonal in _steps(maps, noise):
        followed.append(orthogonal[:size].T @ followed[-1])
    return np.array(followed)


def memory_profile(maps: np.ndarray, *, noise: np.ndarray) -> np.ndarray:
    """What the last window knows of each token, old to new: trace of B Bᵀ, (T + steps,)."""
    context, segments = maps.shape[1:3]
    size = context * segments
    # The window is newest first, the profile old to new.
    memory = np.eye(size).reshape(size, context, segments).swapaxes(0, 1)[::-1]
    for _, orthogonal in _steps(maps, noise):
        memory = np.concatenate([orthogonal[:size].T @ memory, orthogonal[size:].T[None]])
    return np.asarray((memory**2).sum(axis=(1, 2)))


def noise_growth(maps: np.ndarray, *, noise: np.ndarray, readout: np.ndarray) -> np.ndarray:
    """√N times the rms deviation of `readout` (P, L) @ x after each of the steps, (steps + 1,)."""
    newest = np.diag(np.sqrt(noise[maps.shape[1] - 1]))
    factors = [newest, *(factor[: len(newest)] for factor, _ in _steps(maps, noise))]
    return np.array([np.linalg.norm(readout @ factor) for factor in factors])


def _steps(maps: np.ndarray, noise: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """After each step S with C = S Sᵀ, and the orthogonal factor (n + L, n) that led to it."""
    _, context, segments = maps.shape[:3]
    size = context * segments
    # The newest token first, as the axis s of the maps counts.
    factor = np.diag(np.sqrt(noise[:context][::-1]).ravel())
    for back, fresh in zip(maps, noise[context:], strict=True):
        push = np.zeros((size, size + segments))
        push[:segments, :size] = back.swapaxes(0, 1).reshape(segments, size) @ factor
        push[segments:, :size] = factor[:-segments]
        push[:segments, size:] = np.diag(np.sqrt(fresh))
        orthogonal, upper = np.linalg.qr(push.T)
        factor = upper.T
        yield factor, orthogonal


# ---- messages


def message_direction(network: Network, seed: Seed) -> np.ndarray:
    """A random unit vector (L,): which segments a message is written to, and with what sign."""
    drawn = numpy_generator(seed).standard_normal(network.segments)
    return np.asarray(drawn / np.linalg.norm(drawn))


def trace_message(
    network: Network,
    window: np.ndarray,
    direction: np.ndarray,
    *,
    beta: float,
    position: int,
    steps: int,
) -> tuple[np.ndarray, np.ndarray]:
    """What linear noise says of a message in the newest token of a window (T, L), at delays 0, 1, …

    Fisher memory |B_k e|² of its direction; √N times the rms deviation of the overlaps by then.
    """
    path = mean_path(network, beta, window=window, steps=steps, position=position)
    maps = linear_maps(network, beta, path=path, position=position)
    noise = token_noise(network, path)
    readout = (1.0 - network.epsilon) * network.semantic[OUTPUT] * network.fractions
    memory = fisher_memory(maps, noise=noise) @ direction
    return (memory**2).sum(axis=1), noise_growth(maps, noise=noise, readout=readout)


def predicted_information(memory: np.ndarray, *, size: int, strength: float) -> np.ndarray:
    """Bits that the best guess has of the message at each delay, as long as noise is linear."""
    wrong = ndtr(-strength * np.sqrt(size * memory))
    return np.asarray(1.0 - (entr(wrong) + entr(1.0 - wrong)) / np.log(2.0))


def measured_information(
    network: Network,
    window: np.ndarray,
    direction: np.ndarray,
    *,
    size: int,
    beta: float,
    position: int,
    strength: float,
    delays: np.ndarray,
    runs: int,
    seed: int,
) -> np.ndarray:
    """Bits about a message at `delays`, from texts of N = `size` bits, `runs` of each sign."""
    shift = strength * np.sqrt(token_noise(network, window[-1])) * direction
    texts = []
    for own, moved in ((2 * seed, shift), (2 * seed + 1, -shift)):
        sent = np.concatenate([window[:-1], window[-1:] + moved])
        run = generate(
            network,
            size,
            beta=beta,
            window=sent,
            steps=int(delays.max()),
            runs=runs,
            seed=own,
            position=position,
        )
        texts.append(run.tokens)
    information = []
    for delay in map(int, delays):
        # A message that was the newest token of the first window has left it from delay T on.
        window_then = slice(delay, delay + network.context)
        ups = texts[0][:, window_then].reshape(runs, -1)
        downs = texts[1][:, window_then].reshape(runs, -1)
        information.append(label_information(ups, second=downs, seed=seed))
    return np.array(information)


def label_information(
    first: np.ndarray, *, second: np.ndarray, seed: Seed, neighbours: int = 15
) -> float:
    """Lower bound, in bits, on the information of a point about which cloud (n, d) it came from.

    Half of each trains Fisher's linear discriminant and nearest neighbours, a quarter decides which
    of them guesses, the last quarter is guessed. The bias (1/2n ln 2 bits, Miller and Madow) is
    taken off.
    """
    from sklearn.neighbors import KNeighborsClassifier

    half = len(first) // 2
    order = numpy_generator(seed).permutation(len(first))
    train, choose, test = np.split(order, [half, half + (len(first) - half) // 2])
    learned = np.array([first[train], second[train]])
    near = KNeighborsClassifier(neighbours, algorithm="brute")
    near.fit(np.concatenate(learned), np.repeat([0, 1], half))
    means = learned.mean(axis=1)
    within = np.concatenate(learned - means[:, None])
    # Components that never vary, or vary together, are left out.
    inverse = np.linalg.pinv(within.T @ within / len(within), rcond=1e-10, hermitian=True)
    weight = inverse @ (means[1] - means[0])
    bias = weight @ (means[0] + means[1]) / 2.0

    def shares(guess: Callable[[np.ndarray], np.ndarray], rows: np.ndarray) -> np.ndarray:
        """Of points of either cloud, those that are guessed to be of the second."""
        return np.array([guess(cloud[rows]).mean() for cloud in (first, second)])

    # At equal hits the discriminant.
    guessers = (lambda cloud: cloud @ weight > bias, near.predict)
    guess = max(guessers, key=lambda one: float(np.diff(shares(one, choose))[0]))
    table = np.array([[1.0 - up, up] for up in shares(guess, test)]) / 2.0
    outer = table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True)
    return float(rel_entr(table, outer).sum() - 1.0 / (4 * len(test))) / np.log(2.0)
