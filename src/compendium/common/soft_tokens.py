r"""The map of soft tokens of the generator, as the tables of chapter 42 need it.

The map is F(x_1 … x_T) = Σ_v p_v e_v on windows of T soft tokens, p = softmax(β z) of the logits z
of what follows. A leading exponent, in nats per token, is the growth of a covector that is pulled
back along a stored orbit by exact vector–Jacobian products. Distances from a fixed point are in
units of its length. `spinformer.language.SoftTokenMap` is the same map for any model.
"""

from collections.abc import Sequence

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, eigs
from torch import Tensor
from torch.nn.functional import normalize

from compendium.common.decoder import Decoder, encode
from compendium.common.models import next_token_distribution, text_numbers
from compendium.common.rows import Columns
from spinformer.core.anderson import anderson

# What the last tokens of a prompt are if a chat template is put around it.
TEMPLATE = "<|im_end|>\n<|im_start|>assistant\n"


# Farther than this from the rest, in its lengths, is chaos; small oscillations reach 0.05.
FAR = 0.1


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
    model: Decoder, chances: Tensor, samples: int, generator: np.random.Generator
) -> Tensor:
    """Mean embedding (B, D) of the words that N samples draw from each law (B, V)."""
    laws = chances.double().numpy()
    drawn = generator.multinomial(samples, laws / laws.sum(1, keepdims=True))
    return torch.as_tensor(drawn / samples, dtype=chances.dtype) @ model.embedding


def follow(
    model: Decoder,
    windows: Tensor,
    *,
    beta: float | Tensor,
    steps: int,
    samples: int | None = None,
    seed: int = 0,
) -> Tensor:
    """Windows (B, T, D) with the `steps` tokens after them, by the map or a mean of samples."""
    generator, orbit = np.random.default_rng(seed), windows
    for _ in range(steps):
        chances = next_token_distribution(model, orbit[:, -windows.shape[1] :], beta=beta)
        plain = chances @ model.embedding
        said = plain if samples is None else mean_word(model, chances, samples, generator)
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


def settled_texts(model: Decoder, *, beta: float) -> Tensor:
    """Sixteen windows of four tokens, of texts that the map has read for 40 tokens."""
    return follow(model, text_starts(model, span=4, count=17)[1:], beta=beta, steps=40)[:, -4:]


def critical_beta(rows: Columns) -> float:
    """β at which the size of the leading multiplier passes one: ln |μ| drawn straight between."""
    betas = np.unique(rows["beta"])
    logs = np.log([rows["size"][rows["beta"] == beta].max() for beta in betas])
    after = int(np.argmax(logs > 0))
    return float(np.interp(0, logs[after - 1 : after + 1], betas[after - 1 : after + 1]))
