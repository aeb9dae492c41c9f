"""A language model that reads the mean of N voices of its own; N → ∞ makes it a map.

The map is F(x_1 … x_T) = Σ_v p_v e_v on windows of T soft tokens, p = softmax(β z) of the logits z
of what follows. A leading exponent, in nats a token, is the growth of a covector that is pulled
back along a stored orbit by exact vector–Jacobian products.

On another processor a motion in chaos is another one: its exponent is compared within what 16
starts scatter by. A rest is the same to 1e-3.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, eigs
from torch import Tensor
from torch.nn.functional import normalize

from bookmaker.tables import Rows, stored
from compendium.common.models import decoder, next_token_distribution, text_numbers
from compendium.common.rows import mean_rows, parameter_product, rows_of
from spinformer.core.anderson import anderson
from spinformer.language.decoder import Decoder, encode, run_decoder
from spinformer.language.text import sample_texts

# What the last tokens of a prompt are if a chat template is put around it.
TEMPLATE = "<|im_end|>\n<|im_start|>assistant\n"


def soft_token(model: Decoder, windows: Tensor, *, beta: float | Tensor) -> Tensor:
    """The map F: mean embedding (B, D) of what follows windows (B, T, D)."""
    return next_token_distribution(model, windows, beta=beta) @ model.embedding


def text_starts(model: Decoder, *, span: int, count: int = 16) -> Tensor:
    """Windows (count, span, D): a chat template's tail, then pieces of the seven texts in turn."""
    texts = text_numbers(model)
    starts = [torch.cat((texts[0][:span], encode(model, TEMPLATE)))[-span:]]
    for number in range(count - 1):
        place = 40 * (number // len(texts))
        starts.append(texts[number % len(texts)][place : place + span])
    return model.embedding[torch.stack(starts)]


def find_rests(model: Decoder, betas: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Rests x (n, D) next to the mean of all words, one a β, stable or not; residuals.

    ‖F(x) − x‖/√D, in units of the words' root mean square entry. A window of one token is enough.
    """
    scale = model.embedding.square().mean().sqrt()
    beta = torch.tensor(betas, dtype=model.embedding.dtype)[:, None]
    found = anderson(
        lambda tokens: soft_token(model, tokens, beta=beta)[:, None],
        model.embedding.mean(0).expand(len(betas), 1, -1),
        tolerance=1e-5 * float(scale),
        max_steps=300,
    )
    return found.value[:, 0], found.residual / scale


def beside_rests(
    model: Decoder, betas: Sequence[float], *, span: int, size: float
) -> tuple[Tensor, Tensor]:
    """The rest (n, D) at each β, and windows (n, T, D) of it moved by `size` of its length."""
    rests = find_rests(model, betas)[0]
    noise = torch.randn(rests.shape, generator=torch.Generator().manual_seed(0))
    nudge = size * rests.norm(dim=1, keepdim=True) * normalize(noise, dim=1)
    return rests, (rests + nudge)[:, None].expand(-1, span, -1)


def distances(orbits: Tensor, rests: Tensor) -> Tensor:
    """Distance (B, n) of orbits (B, n, D) from rests (B, D), in units of the rests' lengths."""
    return (orbits - rests[:, None]).norm(dim=2) / rests.norm(dim=1, keepdim=True)


def multipliers(
    model: Decoder, token: Tensor, *, span: int, beta: float, count: int = 2
) -> np.ndarray:
    """Leading eigenvalues of the map of windows at the rest `token` (D,), largest first."""
    leaf = token.expand(1, span, -1).clone().requires_grad_()
    following = soft_token(model, leaf, beta=beta)

    def pulled(vector: np.ndarray) -> np.ndarray:
        covector = torch.as_tensor(vector.reshape(leaf.shape), dtype=leaf.dtype)
        return pull_back(leaf, following, covector).numpy().ravel()

    kind = model.embedding.numpy().dtype
    operator = LinearOperator((leaf.numel(), leaf.numel()), matvec=pulled, dtype=kind)
    start = np.random.default_rng(0).normal(size=leaf.numel()).astype(kind)
    found = eigs(operator, k=count, ncv=20, tol=1e-3, v0=start, return_eigenvectors=False)
    return found[np.argsort(-abs(found), kind="stable")]


def pull_back(leaf: Tensor, following: Tensor, covector: Tensor) -> Tensor:
    """Jᵀ covector for the map of windows, from windows `leaf` and the tokens made of them."""
    (back,) = torch.autograd.grad(following, leaf, covector[:, -1], retain_graph=True)
    back[:, 1:] += covector[:, :-1]
    return back


def mean_word(
    model: Decoder, chances: Tensor, voices: int, generator: np.random.Generator
) -> Tensor:
    """Mean embedding (B, D) of the words that N voices draw from each law (B, V)."""
    laws = chances.double().numpy()
    drawn = generator.multinomial(voices, laws / laws.sum(1, keepdims=True))
    return torch.as_tensor(drawn / voices, dtype=chances.dtype) @ model.embedding


def follow(
    model: Decoder, windows: Tensor, *, beta: float | Tensor, steps: int, voices: int | None = None
) -> Tensor:
    """Windows (B, T, D) with the `steps` tokens after them, by the map or by the mean of voices."""
    generator, orbit = np.random.default_rng(0), windows
    for _ in range(steps):
        chances = next_token_distribution(model, orbit[:, -windows.shape[1] :], beta=beta)
        plain = chances @ model.embedding
        said = plain if voices is None else mean_word(model, chances, voices, generator)
        orbit = torch.cat((orbit, said[:, None]), 1)
    return orbit


def exponents(
    model: Decoder, orbit: Tensor, *, span: int, beta: float | Tensor, align: int
) -> np.ndarray:
    """Leading exponent (B,) of orbits (B, T + n, D); `align` of the n steps turn the covector."""
    steps = orbit.shape[1] - span
    generator = torch.Generator().manual_seed(0)
    covector = torch.randn(orbit[:, :span].shape, generator=generator).to(orbit)
    growth = torch.zeros(len(orbit), dtype=torch.float64)
    for number in reversed(range(steps)):
        leaf = orbit[:, number : number + span].clone().requires_grad_()
        covector = pull_back(leaf, soft_token(model, leaf, beta=beta), covector)
        size = covector.flatten(1).norm(dim=1)
        covector = covector / size[:, None, None]
        if number < steps - align:
            growth += size.double().log()
    return (growth / (steps - align)).numpy()


def returns(orbit: Tensor, *, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Lag and distance (B,) at which the `longest` last tokens of orbits come back nearest."""
    pieces = orbit.unfold(1, longest, 1).flatten(2).flip(1)[:, : longest + 1]
    scale = orbit[:, 0].norm(dim=-1).mean() * longest**0.5
    gaps = (pieces[:, 1:] - pieces[:, :1]).norm(dim=2).T / scale
    # The first lag that is as good as the best one, so that a cycle is not called twice itself.
    first = (gaps <= 1.5 * gaps.min(0).values + 1e-6).int().argmax(0)
    return first.numpy() + 1, gaps.gather(0, first[None])[0].numpy()


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


def motion_rows(
    model: Decoder,
    begin: Tensor,
    betas: Sequence[float],
    *,
    settle: int = 100,
    measure: int = 120,
    last: int = 48,
) -> Rows:
    """One row a β and window of `begin` (n, T, D): exponent, and return of the `last` tokens."""
    count, span, _ = begin.shape
    beta = torch.tensor(betas).repeat_interleave(count)[:, None]
    windows = begin.repeat(len(betas), 1, 1)
    orbit = follow(model, windows, beta=beta, steps=settle + measure)[:, settle:]
    rates = exponents(model, orbit, span=span, beta=beta, align=measure // 4)
    lags, gaps = returns(orbit, longest=last)
    starts = np.tile(np.arange(count), len(betas))
    return rows_of(beta=np.repeat(betas, count), start=starts, exponent=rates, lag=lags, gap=gaps)


# Of the small units, so short that chaos cannot amplify the rounding of single precision by much.
_SHORT = {"settle": 0, "measure": 4, "last": 2}
_CLOSE = {"exponent": 0.01, "gap": 0.01}
MOTIONS = {4: (0.5, 0.6, 0.65, 0.7, 0.8, 1.0, 2.0), 8: (0.5, 0.6, 0.7, 1.0), 16: (1.0,)}


@stored(
    "motions",
    parameter_product(span=MOTIONS),
    small={"span": 4, "count": 2} | _SHORT,
    seconds=5.0,
    within=_CLOSE,
)
def motion_table(span: int, *, count: int = 16, **lengths: int) -> Rows:
    """What starts, one of the chat template and the others of text, do after 100 tokens.

    `lengths` are those of `motion_rows`.
    """
    begin = text_starts(decoder(), span=span, count=count)
    return motion_rows(decoder(), begin, MOTIONS[span], **lengths)


# The model card samples at temperature 0.2 (and from the likeliest words alone, which is left out).
CARD_BETA = 5.0


@stored(
    "card",
    parameter_product(span=(4,), beta=(CARD_BETA,)),
    small={"span": 4, "beta": CARD_BETA, "count": 1} | _SHORT,
    seconds=30.0,
    within=_CLOSE,
)
def card_table(
    span: int,
    *,
    beta: float,
    count: int = 16,
    settle: int = 100,
    measure: int = 120,
    last: int = 48,
) -> Rows:
    """What starts do at the temperature of the model card, once settled."""
    begin = text_starts(decoder(), span=span, count=count)
    return motion_rows(decoder(), begin, (beta,), settle=settle, measure=measure, last=last)


KINDS = ("essay", "narrative", "dialogue", "law", "list")
PROMPTS = parameter_product(beta=(0.56, 0.58), steps=(120,)) + parameter_product(
    beta=(1.0,), steps=(70,)
)


@stored(
    "prompts", PROMPTS, small={"beta": 1.0, "steps": 12}, seconds=20.0, within={"exponent": 0.05}
)
def prompt_table(beta: float, *, steps: int) -> Rows:
    """Tokens until texts, plain or before a template, stay at rest; at β = 1 their exponent."""
    model, texts = decoder(), sample_texts()
    words = [encode(model, texts[kind])[:8] for kind in KINDS]
    tail = encode(model, TEMPLATE)
    windows = torch.stack([*words, *(torch.cat((text, tail))[-8:] for text in words)])
    orbit = follow(model, model.embedding[windows], beta=beta, steps=steps)
    ends = orbit[:, -48:]
    rates = exponents(model, ends, span=8, beta=beta, align=10) if beta == 1.0 else np.nan
    away = distances(orbit[:, 8:], find_rests(model, [beta])[0].expand(len(windows), -1))
    ways = [max(np.flatnonzero(far > 0.01), default=-1) + 1 for far in away.numpy()]
    return rows_of(kind=KINDS * 2, template=["no"] * 5 + ["yes"] * 5, way=ways, exponent=rates)


def settled_texts(model: Decoder, *, beta: float) -> Tensor:
    """Sixteen windows of four tokens, of texts that the map has read for 40 tokens."""
    return follow(model, text_starts(model, span=4, count=17)[1:], beta=beta, steps=40)[:, -4:]


VOICES = (1, 10, 100, 1000, 10_000)


@stored(
    "voices",
    parameter_product(beta=(0.5, 1.0), voices=(*VOICES, 100_000)),
    small={"beta": 0.5, "voices": 100, "steps": 3},
    seconds=20.0,
    within={"distance": 0.02, "error": 0.01, "apart": 1e-5},
)
def voices_table(beta: float, *, voices: int, steps: int = 24) -> Rows:
    """Distance of laws of voices and the map that began alike; `apart`: of the map's own orbits."""
    model, rows = decoder(), []
    begin = settled_texts(model, beta=beta)
    both = (
        follow(model, begin, beta=beta, steps=steps, voices=number) for number in (None, voices)
    )
    orbits = torch.cat(list(both))
    for step in range(1, steps + 1):
        laws, spoken = next_token_distribution(model, orbits[:, step : step + 4], beta=beta).chunk(
            2
        )
        distance = 0.5 * (laws - spoken).abs().sum(1)
        apart = 0.5 * (laws - laws.roll(1, 0)).abs().sum(1).mean()
        rows += rows_of(step=step, distance=distance.mean(), error=distance.std() / 4, apart=apart)
    return rows


def noise_rows(
    model: Decoder, windows: Tensor, *, beta: float, voices: int, draws: int, seed: int
) -> Rows:
    """Deviation of N voices from the map at the first token, with its error, and √(tr C / N)."""
    chances, generator = (
        next_token_distribution(model, windows, beta=beta),
        np.random.default_rng(seed),
    )
    plain = chances @ model.embedding
    said = [mean_word(model, chance.expand(draws, -1), voices, generator) for chance in chances]
    squares = (torch.stack(said, 1) - plain).square().sum(2).T.double().numpy().ravel()
    deviation = squares.mean() ** 0.5
    error = squares.std(ddof=1) / len(squares) ** 0.5 / (2 * deviation)
    variance = chances @ model.embedding.square().sum(1) - plain.square().sum(1)
    return rows_of(deviation=deviation, error=error, noise=float(variance.mean() / voices) ** 0.5)


@stored(
    "noise",
    parameter_product(beta=(0.5, 1.0), voices=VOICES[1:]),
    checked=1,
    seconds=15.0,
    rtol=0.15,
)
def noise_table(beta: float, *, voices: int) -> Rows:
    """32 draws from each of 16 windows of four tokens."""
    begin = settled_texts(decoder(), beta=beta)
    return noise_rows(decoder(), begin, beta=beta, voices=voices, draws=32, seed=voices)


def greedy_loops(model: Decoder, begin: Tensor, *, horizon: int) -> tuple[np.ndarray, np.ndarray]:
    """Length of the loop (0: none yet) and of the way to it, of greedy decoding.

    One of each for a window of `begin` (B, T, D).
    """
    starts = len(begin)
    windows = begin.clone()
    seen: list[dict[bytes, int]] = [{} for _ in range(starts)]
    loops, ways = np.zeros(starts, dtype=int), np.full(starts, horizon)
    for step in range(horizon):
        for k in np.flatnonzero(loops == 0):
            before = seen[k].setdefault(windows[k].numpy().tobytes(), step)
            if before < step:
                loops[k], ways[k] = step - before, before
        active = np.flatnonzero(loops == 0)
        if not active.size:
            break
        states = run_decoder(model, windows[active])[:, -1]
        said = model.embedding[(states @ model.embedding.T).argmax(-1)]
        windows[active] = torch.cat((windows[active, 1:], said[:, None]), 1)
    return loops, ways


@stored(
    "loops",
    parameter_product(span=(2, 4, 8), horizon=(600,))
    + parameter_product(span=(16,), horizon=(400,)),
    checked=1,
    seconds=15.0,
    within={"loop": np.inf, "way": np.inf},
)
def loop_table(span: int, *, horizon: int) -> Rows:
    """Loop and way of greedy decoding from 32 starts (16 at the longest window)."""
    starts = 32 if span < 16 else 16
    begin = text_starts(decoder(), span=span, count=starts)
    loops, ways = greedy_loops(decoder(), begin, horizon=horizon)
    return rows_of(start=np.arange(starts), loop=loops, way=ways)


@stored(
    "cold",
    parameter_product(span=(4,), beta=(4.0, 16.0, 64.0)),
    small={"span": 4, "beta": 16.0, "steps": 12, "last": 4},
    seconds=5.0,
    within={"gap": 0.01},
)
def cold_table(span: int, *, beta: float, steps: int = 80, last: int = 32) -> Rows:
    """The map at large β, 80 tokens from 16 starts of loop_table: return of the last 32."""
    begin = text_starts(decoder(), span=span)
    orbit = follow(decoder(), begin, beta=beta, steps=steps)[:, span:]
    lags, gaps = returns(orbit, longest=last)
    return rows_of(start=np.arange(len(begin)), lag=lags, gap=gaps)


HEADS, INNER = ("query", "key", "value", "output"), ("gate", "up", "down")
SHUFFLED = {"attention": HEADS, "feed-forward": INNER, "": HEADS + INNER}


def changed(model: Decoder, what: str, parts: str = "all", *, seed: int = 0) -> Decoder:
    """The same architecture with other weights: "trained", "fresh" or "shuffled ..." ones.

    fresh: matrices Gaussian with the standard deviation 1/√D, gains one. (Trainings often begin
    with smaller output and down matrices, by one over the root of twice the number of blocks.)
    shuffled: the entries of each matrix permuted, or of "attention" or "feed-forward" alone; the
    words keep their embeddings. parts: the only ones that act.
    """
    generator = torch.Generator().manual_seed(seed)
    kind, _, which = what.partition(" ")

    def other(name: str, matrix: Tensor) -> Tensor:
        if name == {"attention": "down", "feed-forward": "output"}.get(parts):
            return torch.zeros_like(matrix)
        if kind == "fresh" and matrix.ndim == 1:
            return torch.ones_like(matrix)
        if kind == "fresh":
            drawn = torch.randn(matrix.shape, generator=generator)
            return drawn.to(matrix) / model.width**0.5
        if kind == "shuffled" and name in SHUFFLED[which]:
            order = torch.randperm(matrix.numel(), generator=generator)
            return matrix.flatten()[order].view_as(matrix)
        return matrix

    blocks = [{name: other(name, m) for name, m in block.items()} for block in model.blocks]
    words, gain = other("embedding", model.embedding), other("final_gain", model.final_gain)
    return replace(model, blocks=blocks, embedding=words, final_gain=gain)


OTHERS = ("shuffled attention", "shuffled feed-forward", "shuffled", "fresh")


@stored(
    "controls",
    parameter_product(weights=("trained",), parts=("attention", "feed-forward"))
    + parameter_product(weights=OTHERS, parts=("all",)),
    small={"weights": "shuffled attention", "parts": "all"} | _SHORT,
    seconds=3.0,
    within=_CLOSE,
)
def control_table(
    weights: str, *, parts: str, settle: int = 80, measure: int = 100, last: int = 48
) -> Rows:
    """Motions of a window of four tokens, four starts, with other weights or one part alone."""
    model = changed(decoder(), weights, parts)
    begin = text_starts(model, span=4, count=4)
    return motion_rows(model, begin, (1.0, 3.0), settle=settle, measure=measure, last=last)


@stored(
    "untrained",
    parameter_product(weights=("fresh",), draw=range(1, 7), span=(4,))
    + parameter_product(weights=("shuffled",), draw=range(1, 7), span=(4,)),
    small={"weights": "fresh", "draw": 1, "span": 4} | _SHORT,
    seconds=4.0,
    within=dict.fromkeys(("value", "low", "high"), 0.01),
)
def untrained_table(
    weights: str, *, draw: int, span: int, settle: int = 30, measure: int = 52, last: int = 48
) -> Rows:
    """Minus the exponent of other weights at β = 1, one draw, four starts, 30 + 52 tokens."""
    model = changed(decoder(), weights, seed=draw)
    begin = text_starts(model, span=span, count=4)
    rows = motion_rows(model, begin, (1.0,), settle=settle, measure=measure, last=last)
    [line] = mean_rows(np.array([-row["exponent"] for row in rows]))
    return [{"data": f"{weights} {draw}"} | line]
