"""Long runs of finite networks: pairs of texts that share their noise, and the tables."""

from functools import partial

import numpy as np
import pytest
from known_networks import COIN
from scipy.optimize import brentq

from compendium.c32b_finite_size import long_run as study, settings
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.lyapunov import lyapunov_spectrum
from spinformer.dmft.mean_field import random_contexts
from spinformer.dmft.network import Network


def test_texts_that_share_their_noise_grow_apart_as_the_limit_does():
    """Below the onset x → tanh βx contracts by β at rest; pairs of few bits merge."""
    windows = np.zeros((40, 1, 1))
    growth = partial(study.coupled_growth, COIN, position=0, seed=1)
    rates = growth(10**9, beta=0.7, windows=windows, steps=40, transient=8)
    assert len(rates) == 40
    assert rates.mean() == pytest.approx(np.log(0.7), abs=3e-3)
    assert not len(growth(10**6, beta=0.0, windows=windows, steps=8, transient=0))
    # Pairs part by ln 1.5 a step from the unstable rest; later they contract by the slope.
    fixed = brentq(lambda m: np.tanh(1.5 * m) - m, 0.1, 1.0)
    start = np.full((6, 1, 1), 1e-3)
    late = growth(10**12, beta=1.5, windows=start, steps=8, transient=40)
    assert late.mean() == pytest.approx(np.log(1.5 * (1.0 - fixed**2)), abs=2e-3)
    assert growth(10**12, beta=1.5, windows=start, steps=8, transient=0).mean() > 0.3


@pytest.mark.claim("C18c")
def test_stationary_laws_tend_to_the_measure_of_the_attractor():
    table = study.stationary_table.read()
    for regime in dict.fromkeys(table["regime"]):
        rows = table["regime"] == regime
        floor = table["floor"][rows].mean()
        first, *_, last = table["distance"][rows].reshape(2, -1).T  # two seeds
        assert (first > 3 * floor).all()
        if regime == "driven":
            # Gaussians around points: the mean distance is σ √(2/π), all the way down.
            np.testing.assert_allclose(np.log(first / last) / np.log(1e5), 0.5, atol=0.06)
        else:
            assert (last < 2 * floor).all()


@pytest.mark.claim("C18e")
def test_noise_makes_chaos_of_a_cycle_and_exponents_tend_to_the_limit():
    table = study.exponents_table.read()
    network = Network.poclopez2024()
    start = random_contexts(network, 2, count=16)
    for beta, wait in ((1.27, 30_000), (1.28, 0), (1.4, 0)):
        ensemble = Ensemble(network, start, beta=beta)
        ensemble.advance(wait)
        spectrum = lyapunov_spectrum(
            network, ensemble.state(), beta=beta, steps=40_000, batches=8, count=1
        )
        rates = spectrum.growth[..., 0]
        limit = np.median(rates[:, 4:].mean(axis=1)) if wait else rates[:, 4:].mean()
        rows = (table["beta"] == beta) & (table["exponent"] == 8)
        np.testing.assert_allclose(table["growth"][rows], limit, atol=0.016)
        assert wait == 0 or limit < -0.04
    small = table["growth"][(table["beta"] == 1.27) & (table["exponent"] == 5)]
    assert (small > 0.05).all()


@pytest.mark.parametrize("row", ["c18c", "c18e"])
def test_the_motion_of_a_line_is_that_of_sixteen_random_contexts(row):
    """By their exponents: chaotic from 0.03 on; those of cycles are below zero, of curves zero."""
    network = Network.poclopez2024()
    starts = random_contexts(network, 0, count=16)
    tables = [getattr(settings, f"{kind}_{row}") for kind in ("settings", "confirm")]
    motions = {(unit["beta"], unit["regime"]) for table in tables for unit in table.units}
    assert len(motions) > 12
    for beta, regime in motions:
        rates = lyapunov_spectrum(
            network, starts, beta=beta, transient=30_000, steps=20_000, count=1
        ).exponents.value[:, 0]
        assert (regime == "chaotic") == (rates.min() >= 0.03)
        assert (regime == "quasi-periodic") == (np.abs(rates).max() < 2e-4)
        assert (regime in ("driven", "periodic")) == (rates.max() < -2e-4)
        assert (regime == "driven") == (beta < 1.24)
