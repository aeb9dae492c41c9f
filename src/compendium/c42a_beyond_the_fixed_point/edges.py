"""Beside the fixed point of a generator's map: coexisting chaos, its lifetimes, and KV caches.

Distances are those of a soft token from the fixed point at its β, in units of its length.
"""

import itertools
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bookmaker.tables import Rows, read_columns, stored
from compendium.common.decoder import Decoder, encode, run_decoder
from compendium.common.models import decoder
from compendium.common.rows import groupby, parameter_product, rows_of
from compendium.common.soft_tokens import (
    FAR,
    beside_rests,
    critical_beta,
    distances,
    find_rests,
    follow,
    text_starts,
)
from spinformer.dmft.lifetimes import Lifetime, estimate_lifetime

# The multipliers of the fixed point are a table of chapter 42.
CHAPTER_42 = Path(__file__).parents[1] / "c42_generator_as_a_map"

# How far a stream's twin is from it, in all its keys, values and its state together.
TWIN = 0.05


@stored(
    "branches",
    parameter_product(span=(4, 8)),
    small={"span": 8, "steps": 3, "values": 3},
    seconds=5.0,
    within={"away": 0.01},
)
def branch_table(span: int, *, steps: int = 60, values: int = 17) -> Rows:
    """Distance from the rest of orbits followed along `values` of β, 16 / T a way.

    Up: they begin at the rest and are nudged by a thousandth at each β. Down: they begin as texts.
    away: mean over the last third of the `steps` at each β.
    """
    model, betas = decoder(), np.linspace(0.54, 0.7, values).round(2)
    rests, nudged = beside_rests(model, betas.tolist(), span=span, size=1e-3)
    count, rows = 16 // span, []
    texts = text_starts(model, span=span, count=count)
    windows = torch.cat((nudged[:1].expand(count, -1, -1), texts))
    ways, starts = np.repeat(["up", "down"], count), np.tile(np.arange(count), 2)
    generator = torch.Generator().manual_seed(1)
    for k in range(values):
        place = np.where(ways == "up", k, values - 1 - k)
        noise = torch.randn(windows[:count].shape, generator=generator) / model.width**0.5
        windows[:count] += 1e-3 * rests[k].norm() * noise
        orbit = follow(
            model, windows, beta=torch.tensor(betas[place]).float()[:, None], steps=steps
        )
        windows = orbit[:, -span:].clone()
        away = distances(orbit[:, -(steps // 3) :], rests[place]).mean(1)
        rows += rows_of(way=ways, beta=betas[place], start=starts, away=away)
    return rows


LIVES = [
    *parameter_product(span=(4,), beta=(0.54, 0.55), horizon=(400,)),
    *parameter_product(span=(4,), beta=(0.56, 0.58), horizon=(600,)),
    *parameter_product(span=(8,), beta=(0.55, 0.56, 0.57), horizon=(400,)),
    *parameter_product(span=(8,), beta=(0.59,), horizon=(260,)),
]


@stored(
    "lives", LIVES, small={"span": 4, "beta": 0.3, "horizon": 60}, seconds=15.0, within={"time": 1}
)
def life_table(span: int, *, beta: float, horizon: int) -> Rows:
    """The last of a text's tokens far from the rest, if it `ended` so by the horizon; 16 texts."""
    model = decoder()
    rest = find_rests(model, [beta])[0]
    windows = text_starts(model, span=span)
    times, live = np.zeros(16, dtype=int), np.arange(16)
    for begin in range(0, horizon, 20):
        orbit = follow(model, windows[live], beta=beta, steps=20)
        far = (distances(orbit[:, span:], rest.expand(len(live), -1)) > FAR).numpy()
        windows[live] = orbit[:, -span:]
        live, far = live[far.any(1)], far[far.any(1)]
        times[live] = begin + 20 - far[:, ::-1].argmax(1)
        if not live.size:
            break
    times[live] = horizon
    numbers = np.arange(16)
    return rows_of(start=numbers, time=times, ended=(~np.isin(numbers, live)).astype(int))


def side_by_side(span: int) -> list[float]:
    """The β at which all orbits that come up are within FAR of the rest and none from above is."""
    found = []
    for beta, rows in groupby(dict(groupby(branch_table.read(), "span"))[span], "beta"):
        up = rows["way"] == "up"
        if rows["away"][up].max() < FAR < rows["away"][~up].min():
            found.append(beta)
    return sorted(found)


def mean_lives(span: int) -> dict[float, Lifetime]:
    """The mean life of chaos beside the rest by β."""
    lives = groupby(dict(groupby(life_table.read(), "span"))[span], "beta")
    return {b: estimate_lifetime(rows["time"], ended=rows["ended"]) for b, rows in lives}


# In tokens: chaos that lives shorter in the mean does not exist beside the rest.
LASTING = 1000


@stored("settings_R3c", parameter_product(span=(4, 8), rest=("multipliers", "orbits")), seconds=0.1)
def coexistence_table(span: int, *, rest: str) -> Rows:
    """Stretch of β, less 0.02, from where chaos is lasting to where the rest is lost.

    The lives and the branches of one length of the window are one set of runs.
    """
    lives = mean_lives(span)
    pairs = dict(groupby(read_columns(CHAPTER_42 / "pairs.csv"), "span"))[span]
    top = critical_beta(pairs) if rest == "multipliers" else side_by_side(span)[-1]
    ends = np.log([[one.value, one.low, one.high] for one in lives.values()]).T
    begin = [np.interp(np.log(LASTING), logs, list(lives)) for logs in ends]
    value, low, high = (top - 0.02 - beta for beta in begin)
    return rows_of(data=span, value=value, low=low, high=high, runs=16)


def stream(
    model: Decoder, windows: Tensor, *, betas: Tensor, steps: int, settle: int
) -> tuple[Tensor, np.ndarray]:
    """The map that keeps keys and values, one β (B,) a stream: tokens (B, n, D), growth (m, B).

    After `settle` tokens a twin runs beside each stream, its keys, values and state a distance TWIN
    away and brought back there after each token; growth: logarithms of what m tokens made of it.
    """
    memory: list[tuple[Tensor, Tensor]] = []
    span, count = windows.shape[1], len(windows)
    states = run_decoder(model, windows, memory=memory, span=span)[:, -1]
    orbit, growth = [], []
    for step in range(steps):
        if step == settle:
            memory[:] = [(torch.cat((k, k)), torch.cat((v, v))) for k, v in memory]
            noise = torch.randn(states.shape, generator=torch.Generator().manual_seed(0))
            states, betas = torch.cat((states, states + 0.01 * noise)), betas.repeat(2)
        chances = torch.softmax(betas[:, None] * (states @ model.embedding.T), -1)
        token = chances @ model.embedding
        orbit.append(token[:count])
        place = span + step
        states = run_decoder(model, token[:, None], memory=memory, span=span, start=place)[:, -1]
        if step >= settle:
            parts = [*itertools.chain(*memory), states]
            gaps = [one[count:] - one[:count] for one in parts]
            size = torch.stack([gap.square().flatten(1).sum(1) for gap in gaps]).sum(0).sqrt()
            for one, gap in zip(parts, gaps, strict=True):
                one[count:] = one[:count] + gap * (TWIN / size).view(-1, *[1] * (gap.ndim - 1))
            growth.append((size / TWIN).double().log().numpy())
    return torch.stack(orbit, 1), np.array(growth)


@stored(
    "diagram",
    [{"span": 8, "steps": 600}],
    small={"span": 8, "steps": 12, "streams": 12, "last": 4},
    seconds=3.0,
    within={"the": 1e-3, "line": 1e-3},
)
def diagram_table(span: int, *, steps: int, streams: int = 48, last: int = 40) -> Rows:
    """The `last` tokens of streams along " the" and a line's end, each word itself at 1."""
    model, betas = decoder(), 0.4 + 0.02 * torch.arange(streams)
    begin, mean = text_starts(model, span=span, count=2)[1:], model.embedding.mean(0)
    axes = model.embedding[[int(encode(model, word)[0]) for word in (" the", "\n")]] - mean
    orbit, _ = stream(model, begin.expand(streams, -1, -1), betas=betas, steps=steps, settle=steps)
    found = (orbit[:, -last:] - mean) @ (axes / axes.square().sum(1, keepdim=True)).T
    the, line = found.flatten(0, 1).T.numpy().round(4)
    return rows_of(beta=betas.double().numpy().round(4).repeat(last), the=the, line=line)


def stream_exponents(
    windows: Tensor, *, beta: float, settle: int = 60, align: int = 20, measure: int = 50
) -> tuple[Tensor, np.ndarray]:
    """Orbits (B, n, D) of streams from windows, and their exponents (B,).

    The twins turn for `align` tokens before their growth is measured.
    """
    betas = torch.full((len(windows),), beta)
    steps = settle + align + measure
    orbit, growth = stream(decoder(), windows, betas=betas, steps=steps, settle=settle)
    return orbit, growth[align:].mean(0)


@stored(
    "streams",
    parameter_product(span=(8,), beta=(0.54, 0.58, 0.6, 1.0)),
    small={"span": 8, "beta": 0.58, "settle": 1, "align": 1, "measure": 2},
    seconds=3.0,
    within={"exponent": 0.15, "away": 0.01},
)
def stream_table(span: int, *, beta: float, **lengths: int) -> Rows:
    """Exponents of 16 streams, and how far their last 20 tokens are from the rest."""
    model = decoder()
    orbit, exponent = stream_exponents(text_starts(model, span=span), beta=beta, **lengths)
    away = distances(orbit[:, -20:], find_rests(model, [beta])[0].expand(16, -1)).mean(1)
    return rows_of(start=np.arange(16), exponent=exponent, away=away)
