"""What is left of a message in later windows: by linear noise, and from sampled texts."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr, ndtr, rel_entr

from compendium.c34_memory_beyond_window.fisher import fisher_memory, noise_growth, token_noise
from spinformer.core.random import Seed, numpy_generator
from spinformer.dmft.finite_size import generate, linear_maps, mean_path
from spinformer.dmft.network import OUTPUT, Network


def message_direction(network: Network, seed: Seed) -> np.ndarray:
    """A random unit vector (L,): which segments a message is written to, and with what sign."""
    drawn = numpy_generator(seed).standard_normal(network.segments)
    return np.asarray(drawn / np.linalg.norm(drawn))


def trace_message(
    network: Network, beta: float, *, window: np.ndarray, position: int, direction: np.ndarray,
    steps: int,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """What linear noise says of a message in the newest token of a window (T, L), at delays 0, 1, …

    (steps + 1,) each: Fisher memory |B_k e|² of the message's direction; √N times the rms deviation
    of the overlaps that the noise since the message has caused.
    """
    path = mean_path(network, beta, window=window, steps=steps, position=position)
    maps = linear_maps(network, beta, path=path, position=position)
    noise = token_noise(network, path)
    readout = (1.0 - network.epsilon) * network.semantic[OUTPUT] * network.fractions
    memory = fisher_memory(maps, noise=noise) @ direction
    return (memory**2).sum(axis=1), noise_growth(maps, noise=noise, readout=readout)


def predicted_information(memory: np.ndarray, *, size: int, strength: float) -> np.ndarray:
    """Bits that the best guess has of the message, delay by delay, as long as noise is linear."""
    return gaussian_information(2.0 * strength * np.sqrt(size * memory))


def measured_information(
    network: Network, size: int, *, beta: float, window: np.ndarray, position: int,
    direction: np.ndarray, strength: float, delays: np.ndarray, runs: int, seed: int,
) -> np.ndarray:  # fmt: skip
    """Bits about a message at `delays`, from sampled texts of N = `size` bits.

    The newest token of the window is shifted by ± `strength` times D^{1/2} `direction`, D/N the
    variance of its noise; `runs` texts are drawn of each sign, and the window `delay` tokens
    later is classified by `label_information`.
    """
    shift = strength * np.sqrt(token_noise(network, window[-1])) * direction
    texts = [
        generate(
            network, size, beta=beta, window=np.concatenate([window[:-1], window[-1:] + sign]),
            steps=int(delays.max()), runs=runs, seed=2 * seed + number, position=position,
        ).tokens
        for number, sign in enumerate((shift, -shift))
    ]  # fmt: skip
    found = []
    for delay in map(int, delays):
        # A message that was the newest token of the first window has left it from delay T on.
        ups, downs = (text[:, delay : delay + network.context].reshape(runs, -1) for text in texts)
        found.append(label_information(ups, second=downs, seed=seed))
    return np.array(found)


def gaussian_information(distance: ArrayLike) -> np.ndarray:
    """Bits that the best guess tells of which of two equally likely Gaussians a point is from.

    distance: of their means, in standard deviations along it (any shape, at least 0). The guess
    errs with probability q = Φ(−distance/2) and tells 1 − h(q) bits, h the binary entropy.
    """
    wrong = ndtr(-0.5 * np.asarray(distance))
    return np.asarray(1.0 - (entr(wrong) + entr(1.0 - wrong)) / np.log(2.0))


def label_information(
    first: np.ndarray, *, second: np.ndarray, seed: Seed, neighbours: int = 15
) -> float:
    """Lower bound, in bits, on the information of a point about which cloud it came from.

    first, second: (n, d) samples of two equally likely hypotheses, n at least 2 `neighbours`.
    Half of each trains two classifiers, Fisher's linear discriminant, the best there is for
    Gaussian clouds of one shape, and nearest neighbours, which know no shape. A quarter decides
    which of them guesses, the last quarter is guessed; the mutual information of true and guessed
    label cannot exceed that of true label and point (data processing). It is 1 bit for separate
    clouds; the bias (1/2n ln 2 bits, Miller and Madow) is taken off, so that equal clouds give 0 on
    average. `seed` splits the clouds.
    """
    from sklearn.neighbors import KNeighborsClassifier

    half = len(first) // 2
    order = numpy_generator(seed).permutation(len(first))
    train, choose, test = np.split(order, [half, half + (len(first) - half) // 2])
    learned = np.concatenate([first[train], second[train]])
    near = KNeighborsClassifier(neighbours, algorithm="brute")
    near.fit(learned, np.repeat([0, 1], half))
    weight, bias = _discriminant(first[train], second[train])
    guessers = (near.predict, lambda cloud: cloud @ weight > bias)

    def hits(guess: int) -> float:
        low, high = (guessers[guess](cloud[choose]).mean() for cloud in (first, second))
        return float(high - low)

    guess = guessers[int(hits(1) >= hits(0))]
    ups = [float(guess(cloud[test]).mean()) for cloud in (first, second)]
    table = np.array([[1.0 - u, u] for u in ups]) / 2.0
    outer = table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True)
    return float(rel_entr(table, outer).sum() - 1.0 / (4 * len(test))) / np.log(2.0)


def _discriminant(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, float]:
    """Weight (d,) and bias of Fisher's discriminant: above the bias is `second`."""
    means = first.mean(axis=0), second.mean(axis=0)
    within = np.concatenate([first - means[0], second - means[1]])
    covariance = within.T @ within / len(within)
    # Components that never vary, or vary together, are left out.
    weight = np.linalg.pinv(covariance, rcond=1e-10, hermitian=True) @ (means[1] - means[0])
    return weight, float(weight @ (means[0] + means[1]) / 2.0)
