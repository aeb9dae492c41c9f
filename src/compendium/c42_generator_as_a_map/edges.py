"""Beside the rest of the generator's map: small oscillations, coexisting chaos, lives, streams.

Written before the runs. Distances are those of a soft token from the rest at its β, in units of
the rest's length.

Criteria:

R2b  The rest is lost softly, to a closed curve (a Neimark–Sacker bifurcation): at T = 4 and 8 the
     square of the oscillation's size grows in proportion to β − β_c, so that the power law of the
     size over distances from 0.0025 to 0.02 has a slope of 0.5 ± 0.1 with β_c that of the
     multipliers; it turns about the rest by the angle of the leading pair, to 0.01 of a turn at the
     smallest distance; and its leading exponent is within ± 0.02 nats a token.
R3c  Rest and chaos coexist: at T = 4 and 8 there is an interval of β, longer than 0.02, at which
     every orbit that comes up from the rest is within 0.1 of it and every one that comes down from
     chaos is farther away, when β moves by 0.01 and each stays for 60 tokens.
R3d  The map that keeps its keys is chaotic where the model is used, too: at T = 8 and β = 1 the
     95 % interval of its leading exponent over 16 starts is above zero; and it rests at β = 0.56
     or below, with an interval below zero.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

from bookmaker.tables import Rows, stored
from compendium.c42_generator_as_a_map.study import (
    SHOWN,
    beside_rests,
    distances,
    exponents,
    find_rests,
    follow,
    law,
    multipliers,
    returns,
    text_starts,
    the_model,
)
from spinformer.language.decoder import Decoder, run_decoder, token_numbers

HERE = Path(__file__).parent
# Farther than this from the rest, in its lengths, is chaos; small oscillations reach 0.05.
FAR = 0.1


@stored(
    HERE / "pairs.csv",
    units=[{"span": span, "beta": beta} for span in (4, 8) for beta in (0.61, 0.62, 0.63)],
)
def PAIR_TABLE(span: int, *, beta: float) -> Rows:
    """The leading multipliers of the rest around its loss, one of each pair: size and turns."""
    model = the_model()
    rest = find_rests(model, [beta])[0][0]
    found = multipliers(model, rest, span=span, beta=beta, count=4)
    return [
        {"size": float(abs(mu)), "turns": float(np.angle(mu)) / (2 * np.pi)}
        for mu in found
        if mu.imag >= 0
    ]


def turns_about(orbit: Tensor) -> tuple[float, float]:
    """Turns a token of an orbit (n, D) in the plane where it moves most, and how evenly.

    The second number is the smallest turn over the mean one: positive on a curve that winds.
    """
    centred = orbit - orbit.mean(0)
    plane = torch.linalg.svd(centred, full_matrices=False)[2][:2]
    x, y = (centred @ plane.T).double().numpy().T
    steps = np.diff(np.unwrap(np.arctan2(y, x))) / (2 * np.pi)
    return float(abs(steps.mean())), float((steps / steps.mean()).min())


CIRCLE_BETAS = (0.6225, 0.625, 0.6275, 0.63, 0.635, 0.64, 0.645, 0.65, 0.655, 0.66)


@stored(HERE / "circles.csv", units=[{"span": span} for span in (4, 8)])
def CIRCLE_TABLE(span: int) -> Rows:
    """The small oscillation: size, turns a token, leading exponent; from its state at β = 0.64.

    300 tokens are dropped, 160 measured, 40 of which turn the covector.
    """
    model = the_model()
    _, nudged = beside_rests(model, [0.64], span=span, size=0.05)
    start = follow(model, nudged, beta=0.64, steps=100)[:, -span:]
    betas = torch.tensor(CIRCLE_BETAS)[:, None]
    orbit = follow(model, start.expand(len(betas), -1, -1), beta=betas, steps=460)[:, 300:]
    away = distances(orbit, find_rests(model, CIRCLE_BETAS)[0])
    rates = exponents(model, orbit, span=span, beta=betas, align=40)
    rows = []
    for k, beta in enumerate(CIRCLE_BETAS):
        turns, evenly = turns_about(orbit[k])
        row = {"beta": beta, "size": float(away[k].square().mean().sqrt()), "turns": turns}
        row |= {"evenly": evenly, "farthest": float(away[k].max()), "exponent": float(rates[k])}
        rows.append(row)
    return rows


@stored(HERE / "branches.csv", units=[{"span": span} for span in (4, 8)])
def BRANCH_TABLE(span: int) -> Rows:
    """Orbits followed along β in steps of 0.01, 60 tokens each, four a way: how far from the rest.

    Up: they begin at the rest and are nudged by a thousandth at each step. Down: they begin as
    four texts. away: mean over the last 20 tokens.
    """
    model = the_model()
    betas = [round(0.54 + 0.01 * k, 2) for k in range(17)]
    rests, nudged = beside_rests(model, betas, span=span, size=1e-3)
    texts = model.embedding[text_starts(model, span=span, count=4)]
    windows, rows = torch.cat((nudged[:1].expand(4, -1, -1), texts)), []
    generator = torch.Generator().manual_seed(1)
    for k in range(len(betas)):
        # The first four go up, the others down.
        place = [k] * 4 + [len(betas) - 1 - k] * 4
        noise = torch.randn(windows[:4].shape, generator=generator) / model.width**0.5
        windows[:4] += 1e-3 * rests[k].norm() * noise
        beta = torch.tensor([betas[p] for p in place])[:, None]
        orbit = follow(model, windows, beta=beta, steps=60)
        windows = orbit[:, -span:].clone()
        away = distances(orbit[:, -20:], rests[place]).mean(1)
        rows += [
            {"way": "down" if s > 3 else "up", "beta": betas[place[s]], "start": s % 4, "away": a}
            for s, a in enumerate(away.tolist())
        ]
    return rows


LIVES = [
    *((4, beta, 400) for beta in (0.54, 0.55, 0.56, 0.57, 0.58, 0.6)),
    *((8, beta, 200) for beta in (0.54, 0.55, 0.56, 0.57, 0.58)),
]


@stored(
    HERE / "lives.csv",
    units=[{"span": span, "beta": beta, "horizon": horizon} for span, beta, horizon in LIVES],
)
def LIFE_TABLE(span: int, *, beta: float, horizon: int) -> Rows:
    """The last of a text's tokens that is far from the rest, if 20 follow that are not; 16 texts.

    ended: 1 if so, 0 if the horizon came first, which is then the time.
    """
    model = the_model()
    rest = find_rests(model, [beta])[0]
    windows = model.embedding[text_starts(model, span=span, count=16)]
    times, live = np.zeros(16, dtype=int), np.arange(16)
    for begin in range(0, horizon, 20):
        orbit = follow(model, windows[live], beta=beta, steps=20)
        far = (distances(orbit[:, span:], rest.expand(len(live), -1)) > FAR).numpy()
        last = begin + 20 - far[:, ::-1].argmax(1)
        times[live] = np.where(far.any(1), last, times[live])
        windows[live] = orbit[:, -span:]
        live = live[far.any(1)]
        if not live.size:
            break
    times[live] = horizon
    return [{"start": k, "time": int(t), "ended": int(k not in live)} for k, t in enumerate(times)]


def stream(
    model: Decoder, windows: Tensor, *, betas: Tensor, steps: int, settle: int = 0, align: int = 0
) -> tuple[Tensor, np.ndarray]:
    """The map that keeps keys and values, one β (B,) a stream: tokens (B, n, D), exponents (B,).

    Each new token looks at itself and at the T − 1 before it in every block, whose keys were made
    when those tokens were new: what they saw has left the window and still reaches on. After
    `settle` of the n tokens a random tangent of the next one is carried on through the kept keys
    and values by exact forward derivatives; `align` tokens turn it and are not counted. Without
    any that are counted the exponents are zero.
    """
    memory: list[tuple[Tensor, Tensor]] = []
    span, measure = windows.shape[1], settle > 0
    growth, orbit = torch.zeros(len(windows), dtype=torch.float64), []
    generator = torch.Generator().manual_seed(0)
    # Of the ways to compute attention only the plain one knows forward derivatives.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), forward_ad.dual_level():
        states = run_decoder(model, windows, memory=memory, span=span)[:, -1]
        for step in range(steps):
            chances = torch.softmax(betas[:, None] * (states @ model.embedding.T), -1)
            token = chances @ model.embedding
            if measure and step == settle:
                noise = torch.randn(token.shape, generator=generator).to(token)
                token = forward_ad.make_dual(token, noise)
            orbit.append(forward_ad.unpack_dual(token).primal)
            place = span + step
            states = run_decoder(model, token[:, None], memory=memory, span=span, start=place)[
                :, -1
            ]
            if measure and step >= settle:
                states, size = rescaled(memory, states)
                if step > settle + align:
                    growth += size.double().log()
    return torch.stack(orbit, 1), (growth / max(steps - settle - align - 1, 1)).numpy()


def rescaled(memory: list[tuple[Tensor, Tensor]], states: Tensor) -> tuple[Tensor, Tensor]:
    """States with their tangents, and those of the memory, over the length (B,) of the latter."""
    pairs = [[forward_ad.unpack_dual(one) for one in pair] for pair in memory]
    squares = [one.tangent.square().flatten(1).sum(1) for pair in pairs for one in pair]
    size = torch.stack(squares).sum(0).sqrt()
    for number, (keys, values) in enumerate(pairs):
        memory[number] = tuple(
            forward_ad.make_dual(one.primal, one.tangent / size[:, None, None, None])
            for one in (keys, values)
        )
    state = forward_ad.unpack_dual(states)
    return forward_ad.make_dual(state.primal, state.tangent / size[:, None]), size


def shown(model: Decoder, tokens: Tensor) -> Tensor:
    """Two coordinates (..., 2) of soft tokens: along " the" and along the end of a line.

    Each is the component along a word's embedding, seen from the mean of all words and in units
    in which that word itself is at 1.
    """
    mean = model.embedding.mean(0)
    words = [int(token_numbers(model, word)[0]) for word in SHOWN]
    axes = model.embedding[words] - mean
    return (tokens - mean) @ (axes / axes.square().sum(1, keepdim=True)).T


@stored(HERE / "diagram.csv", units=[{"span": 8, "steps": 600}])
def DIAGRAM_TABLE(span: int, *, steps: int) -> Rows:
    """The last 40 tokens of 48 streams of 600 tokens, β from 0.4 to 1.34."""
    model = the_model()
    betas = 0.4 + 0.02 * torch.arange(48)
    start = model.embedding[text_starts(model, span=span, count=2)[1]]
    found = shown(model, stream(model, start.expand(48, -1, -1), betas=betas, steps=steps)[0])
    return [
        {"beta": round(float(beta), 4), "the": round(float(x), 4), "line": round(float(y), 4)}
        for beta, orbit in zip(betas, found, strict=True)
        for x, y in orbit[-40:]
    ]


@stored(
    HERE / "streams.csv",
    units=[{"span": 8, "beta": beta} for beta in (0.5, 0.56, 0.58, 0.6, 0.7, 1.0)],
)
def STREAM_TABLE(span: int, *, beta: float) -> Rows:
    """Leading exponents of the map that keeps its keys: 16 texts, 80 tokens dropped, 80 measured.

    away: mean distance from the rest of windows over the last 20 tokens.
    """
    model = the_model()
    windows = model.embedding[text_starts(model, span=span, count=16)]
    betas = torch.full((16,), beta)
    orbit, rates = stream(model, windows, betas=betas, steps=180, settle=80, align=20)
    away = distances(orbit[:, -20:], find_rests(model, [beta])[0].expand(16, -1)).mean(1)
    return [
        {"start": k, "exponent": float(rate), "away": float(far)}
        for k, (rate, far) in enumerate(zip(rates, away, strict=True))
    ]


@stored(HERE / "cold.csv", units=[{"span": span} for span in (2, 4)])
def COLD_TABLE(span: int) -> Rows:
    """The soft map at large β from sixteen of the starts of greedy decoding, 200 tokens.

    lag, gap: where the last 48 tokens come back nearest; sure: mean largest probability of 8.
    """
    model, betas = the_model(), (3.0, 10.0, 30.0)
    windows = model.embedding[text_starts(model, span=span, count=16)].repeat(len(betas), 1, 1)
    beta = torch.tensor(betas).repeat_interleave(16)[:, None]
    orbit = follow(model, windows, beta=beta, steps=200)
    lags, gaps = returns(orbit[:, span:], longest=48)
    with torch.no_grad():
        ends = [orbit[:, n - span : n] for n in range(orbit.shape[1] - 8, orbit.shape[1])]
        sure = torch.stack([law(model, end, beta=beta).amax(1) for end in ends]).mean(0)
    return [
        {
            "beta": betas[k // 16],
            "start": k % 16,
            "lag": int(lags[k]),
            "gap": float(gaps[k]),
            "sure": float(sure[k]),
        }
        for k in range(len(orbit))
    ]
