"""The fixed point of a generator's map, its multipliers, how it is lost; the noise of N samples.

A fixed point is the same to 1e-3 on another processor.
"""

import itertools

import numpy as np
import torch
from torch import Tensor

from bookmaker.tables import Rows, stored
from compendium.common.decoder import Decoder
from compendium.common.models import checkpoint, decoder, next_token_distribution
from compendium.common.rows import parameter_product, rows_of
from compendium.common.soft_tokens import (
    beside_rests,
    critical_beta,
    distances,
    exponents,
    find_rests,
    follow,
    mean_word,
    multipliers,
    settled_texts,
)
from spinformer.language.soft_map import SoftTokenMap


# In a long window far from the loss many multipliers are nearly as large, and take long to part.
@stored(
    "rests",
    [
        *parameter_product(span=(4, 8), beta=(0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65), bits=(32,)),
        *parameter_product(span=(16, 32), beta=(0.55, 0.6, 0.65), bits=(32,)),
        *parameter_product(span=(4,), beta=(0.6, 0.65), bits=(64,)),
    ],
    checked=1,
    seconds=3.0,
    within=dict.fromkeys(("real", "imaginary", "size"), 0.01),
)
def rest_table(span: int, *, beta: float, bits: int) -> Rows:
    """The leading multiplier of the rest."""
    model = decoder() if bits == 32 else decoder(dtype=torch.float64)
    leading = multipliers(model, find_rests(model, [beta])[0][0], span=span, beta=beta)[0]
    return rows_of(real=leading.real, imaginary=abs(leading.imag), size=abs(leading))


@stored(
    "short_windows",
    parameter_product(window=(1, 2)),
    small={"window": 1, "highest": 0.65},
    seconds=4.0,
    within={"size": 0.01},
)
def short_windows(window: int, *, highest: float = 2.0) -> Rows:
    """Size of the leading multiplier of the fixed point, which is followed from one β to the next.

    Windows of one and two tokens, for which the table `rests` has none.
    """
    soft = SoftTokenMap(checkpoint().model, window=window)
    token = None
    sizes = []
    betas = [beta for beta in (0.65, 1.0, 1.4, 2.0) if beta <= highest]
    for beta in betas:
        token = soft.fixed_point(beta=beta, start=token).value
        sizes.append(abs(soft.multipliers(token, beta=beta)[0]))
    return rows_of(beta=betas, size=sizes)


@stored("settings_R2", parameter_product(window=(1, 2, 4, 8, 16, 32)), seconds=0.1)
def settings_R2(window: int) -> Rows:
    """0.8 minus the β at which the fixed point is lost, between the two β that enclose it.

    Windows of one and two tokens keep it up to the highest β that was tried.
    """
    short = short_windows.read()
    if window in short["window"]:
        highest = float(short["beta"][(short["window"] == window) & (short["size"] < 1)].max())
        value = low = high = 0.8 - highest
    else:
        rests = rest_table.read()
        rows = {
            name: column[(rests["span"] == window) & (rests["bits"] == 32)]
            for name, column in rests.items()
        }
        value = 0.8 - critical_beta(rows)
        high = 0.8 - float(rows["beta"][rows["size"] < 1].max())
        low = 0.8 - float(rows["beta"][rows["size"] > 1].min())
    return rows_of(data=window, value=value, low=low, high=high, runs=1)


def noise_rows(
    model: Decoder, windows: Tensor, *, beta: float, samples: int, draws: int, seed: int
) -> Rows:
    """Deviation of N samples from the map at the first token, with its error, and √(tr C / N)."""
    chances, generator = (
        next_token_distribution(model, windows, beta=beta),
        np.random.default_rng(seed),
    )
    plain = chances @ model.embedding
    said = [mean_word(model, chance.expand(draws, -1), samples, generator) for chance in chances]
    squares = (torch.stack(said, 1) - plain).square().sum(2).T.double().numpy().ravel()
    deviation = squares.mean() ** 0.5
    error = squares.std(ddof=1) / len(squares) ** 0.5 / (2 * deviation)
    variance = chances @ model.embedding.square().sum(1) - plain.square().sum(1)
    return rows_of(deviation=deviation, error=error, noise=float(variance.mean() / samples) ** 0.5)


@stored(
    "noise",
    parameter_product(beta=(0.5, 1.0), samples=(10, 100, 1000, 10_000)),
    checked=1,
    seconds=15.0,
    rtol=0.15,
)
def noise_table(beta: float, *, samples: int) -> Rows:
    """32 draws from each of 16 windows of four tokens."""
    begin = settled_texts(decoder(), beta=beta)
    return noise_rows(decoder(), begin, beta=beta, samples=samples, draws=32, seed=samples)


@stored(
    "pairs",
    parameter_product(span=(4,), beta=(0.61, 0.63))
    + parameter_product(span=(8,), beta=(0.61, 0.615, 0.63)),
    seconds=3.0,
    rtol=1e-2,
)
def pair_table(span: int, *, beta: float) -> Rows:
    """The leading multipliers of the rest around its loss, one of each pair: size and turns."""
    model = decoder()
    rest = find_rests(model, [beta])[0][0]
    found = multipliers(model, rest, span=span, beta=beta, count=4)
    found = found[found.imag >= 0]
    turns = np.angle(found) / (2 * np.pi)
    return rows_of(rank=np.arange(len(found)), size=abs(found), turns=turns)


@stored("cycle", [{"span": 4, "beta": 0.63}], seconds=10.0, within={"away": 5e-4})
def cycle_table(span: int, *, beta: float) -> Rows:
    """Twenty tokens of an oscillation: distance from rest; that from five before, rounded up."""
    rests, nudged = beside_rests(decoder(), [beta], span=span, size=0.06)
    orbit = follow(decoder(), nudged, beta=beta, steps=90)
    away = distances(orbit, rests)[0, -20:]
    back = distances(orbit[:, 5:] - orbit[:, :-5] + rests, rests)[0, -20:]
    return rows_of(token=np.arange(20), away=away, back=(back * 1e4).ceil() / 1e4)


CIRCLES = {
    4: (0.6225, 0.625, 0.6275, 0.63, 0.635, 0.64, 0.645),
    8: (0.6175, 0.62, 0.6225, 0.625, 0.63, 0.64),
}


@stored(
    "circles",
    parameter_product(span=CIRCLES),
    small={"span": 4, "settle": 8, "measure": 8},
    seconds=10.0,
    within={"size": 1e-4, "exponent": 2e-3},
)
def circle_table(span: int, *, settle: int = 240, measure: int = 100) -> Rows:
    """Size and exponent of the small oscillation, begun at 0.02 from the rest, once settled."""
    model, betas = decoder(), torch.tensor(CIRCLES[span])[:, None]
    rests, nudged = beside_rests(model, CIRCLES[span], span=span, size=0.02)
    orbit = follow(model, nudged, beta=betas, steps=settle + measure)[:, settle:]
    rates = exponents(model, orbit, span=span, beta=betas, align=measure // 4)
    sizes = distances(orbit, rests).square().mean(1).sqrt()
    return rows_of(beta=CIRCLES[span], size=sizes, exponent=rates)


@stored(
    "onset",
    parameter_product(span=(8,)),
    small={"span": 8, "settle": 20, "block": 4},
    seconds=10.0,
    within={"size": 1e-5},
)
def onset_table(span: int, *, settle: int = 220, block: int = 40) -> Rows:
    """Sizes of the oscillation of β = 0.6175 at other β, a share of it at first, block by block."""
    model, choices = decoder(), {"beta": (0.6135, 0.6143), "share": (0.15, 0.4, 1.0)}
    betas, shares = torch.tensor([*itertools.product(*choices.values())]).T
    rests, nudged = beside_rests(model, [0.6175, *betas], span=span, size=0.02)
    begun = follow(model, nudged[:1], beta=0.6175, steps=settle)[:, -span:] - rests[0]
    windows = rests[1:, None] + shares[:, None, None] * begun
    orbit = follow(model, windows, beta=betas[:, None], steps=6 * block)[:, span:]
    sizes = distances(orbit, rests[1:]).unflatten(1, (6, block)).square().mean(2).sqrt().flatten()
    units = parameter_product(**choices, token=range(block, 6 * block + 1, block))
    return [unit | {"size": float(size)} for unit, size in zip(units, sizes, strict=True)]
