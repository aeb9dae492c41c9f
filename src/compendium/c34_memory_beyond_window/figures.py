"""Drawings of memory beyond the window: spectra, Fisher memory, memory times."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from scipy.signal import periodogram

from compendium.c34_memory_beyond_window.study import autocorrelation
from compendium.common.drawing import MOTION_COLORS, intervals
from compendium.common.rows import Columns, array_of, groups
from spinformer.plot.style import COLORS, label_panels

_TOP = 3e4  # of the axis of memory times


def show_spectra(signals: Columns, *, titles: Sequence[str], window: int) -> None:
    """Trajectory, power spectrum |X|²/n (Hann taper) and autocorrelation of signals (orbits, n)."""
    _, axes = plt.subplots(3, len(signals), figsize=(9.0, 7.4), sharey="row", squeeze=False)
    for column, (motion, orbits) in enumerate(signals.items()):
        color = COLORS[MOTION_COLORS[motion]]
        top, middle, bottom = axes[:, column]
        top.plot(orbits[0, -150:], ".-", color=color, lw=0.7, ms=3)
        top.set(xlabel="token")
        top.set_title(titles[column])
        frequency, power = periodogram(orbits, window="hann", return_onesided=False)
        half = np.s_[1 : orbits.shape[1] // 2 + 1]
        shown = np.abs(frequency[half]), power.mean(axis=0)[half]
        middle.semilogy(*shown, color=color, lw=0.7, rasterized=True)
        middle.axvline(1.0 / window, color="0.3", ls="--", lw=1)
        middle.set(xlabel="frequency (cycles per token)", ylim=(1e-12, 1e2))
        each = autocorrelation(orbits, lags=500, unbiased=True)
        mean = each.mean(axis=0)
        bottom.axvspan(0, window, color="0.75")
        bottom.plot(mean, color=color, lw=0.8)
        if len(orbits) > 1:
            band = 2.0 * each.std(axis=0, ddof=1) / np.sqrt(len(orbits))
            bottom.fill_between(np.arange(len(mean)), mean - band, mean + band, color="0.6")
        bottom.set(xlabel="lag (tokens)")
    axes[0, 0].set_ylabel("overlap $m^o_1$")
    axes[1, 0].set_ylabel("power $|X|^2/n$")
    axes[2, 0].set_ylabel("autocorrelation")
    label_panels(list(axes.ravel()))


def show_fisher(curves: Columns, *, profiles: Columns, window: int) -> None:
    """Memory (starts, delays) of one token against the delay, and of all tokens, old to new."""
    _, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.6))
    for motion, curve in curves.items():
        color, time = COLORS[MOTION_COLORS[motion]], np.arange(1, curve.shape[1])
        shown = np.maximum(curve[:, 1:], 1e-30)
        mean = np.exp(np.log(shown).mean(axis=0))
        left.loglog(time, mean, color=color, lw=1.4, label=motion)
        ends = shown.min(axis=0), shown.max(axis=0)
        left.fill_between(time, *ends, color=color, alpha=0.12, lw=0)
    longest = len(time) + 1
    guide = np.geomspace(16, longest, 5)
    left.plot(guide, 1.5 / guide, color="0.4", ls=":", lw=1.2, label="1/k")
    left.axvspan(0.9, window, color="0.85")
    left.set(xlabel="delay k (tokens)", ylabel="Fisher memory of a token", ylim=(1e-6, 2))
    left.set_xlim(0.9, longest)
    left.legend(fontsize=8, loc="lower left")
    for motion, profile in profiles.items():
        total, color = np.cumsum(profile[::-1]), COLORS[MOTION_COLORS[motion]]
        right.semilogx(np.arange(1, len(total) + 1), total, color=color, lw=1.4)
    right.axvspan(0.9, window, color="0.85")
    right.axhline(total[-1], color="0.4", ls=":", lw=1.2)
    right.set(xlabel="the newest k tokens", ylabel="memory of all of them", ylim=(0, None))
    label_panels([left, right])


def show_memory_times(table: Columns, *, window: int) -> None:
    """Memory time against N, one panel a motion: measured (points), linear noise (lines)."""
    _, axes = plt.subplots(1, 5, figsize=(2.05 * 5 + 0.6, 3.3), sharey=True)
    for axis, (motion, rows), marker in zip(axes, groups(table, "motion"), "osD^v", strict=True):
        sizes, names = np.unique(rows["size"]), ("measured", "fisher", "dephased")
        columns = (array_of(rows, name, "start", "size") for name in names)
        measured, fisher, dephased = (np.where(one < 0, np.inf, one) for one in columns)
        found = np.sort(np.clip(measured, 0.5, _TOP), axis=0)
        ends, style = (found[1], np.median(found, axis=0), found[-2]), {"fmt": marker, "ms": 4}
        intervals(axis, sizes, ends, MOTION_COLORS[motion], label="measured", **style)
        for times, shade, line, label in (
            (fisher, "0.5", "--", "linear noise"),
            (np.minimum(fisher, dephased), "0.3", "-", "in range"),
        ):
            middle = np.median(times, axis=0)
            middle = np.where(np.isfinite(middle), np.maximum(middle, 0.5), np.nan)
            axis.plot(sizes, middle, color=shade, ls=line, lw=1.1, label=label)
        axis.set(xscale="log", yscale="log", ylim=(0.4, _TOP), xlabel="bits N")
        axis.set_xticks([1e4, 1e6, 1e8])
        axis.axhspan(0.4, window, color="0.88")
        axis.set_title(motion, fontsize=9)
    axes[0].set_ylabel("memory time (tokens)")
    axes[0].legend(fontsize=7, loc="upper left")
    label_panels(list(axes))
