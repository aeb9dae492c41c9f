"""What a trained network does step by step: energies, read-outs, and along which direction it goes.

For the arms with a memory "energy" is the joint energy of all tokens; for the plain arms it is the
attention energy that their own queries and keys define, with both of its terms.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from compendium.c18_energy_transformer.energy_transformer import (
    attention_energy,
    attention_gradient,
    spread,
)
from compendium.c18_energy_transformer.networks import Network, rotated_updates
from compendium.c18_energy_transformer.training import score
from spinformer.core.random import TorchSeed, torch_generator
from spinformer.core.records import record


@record
class Path:
    """A network of tied steps, run for longer than it was trained for; averages over images.

    score, energy, size (times + 1,): at each time the score, the energy of an image, and the
    spread σ of a token. move (times,): how far the normalised tokens moved in each step,
    root mean square. rise (times,): share of images whose energy rose in it.
    """

    score: np.ndarray
    energy: np.ndarray
    size: np.ndarray
    move: np.ndarray
    rise: np.ndarray


def network_energy(network: Network, tokens: Tensor) -> Tensor:
    """The energy (B,) of tokens (B, N, D): see the module."""
    if network.energy is not None:
        return network.energy.energy(tokens)
    parts = network.attend(tokens, index=0)
    return attention_energy(parts.seen, query_map=parts.query_map, key_map=parts.key_map)


@torch.no_grad()
def follow(
    network: Network, patches: Tensor, *, labels: Tensor, hidden: Tensor, steps: int
) -> Path:
    """Run `steps` steps of a network whose steps are tied, in double precision."""
    if network.arm == "untied":
        raise ValueError("network must have tied steps, got an untied one")
    network, patches = network.double(), patches.double()
    tokens = [network.embed(patches, hidden)]
    for index in range(steps):
        tokens.append(network.step(tokens[-1], index=index))
    energies = torch.stack([network_energy(network, x) for x in tokens])
    seen = torch.stack([network.attend(x, index=0).seen for x in tokens])
    scores = [score(network.read(x), patches=patches, labels=labels, hidden=hidden) for x in tokens]
    return Path(
        score=np.array(scores),
        energy=energies.mean(-1).numpy(),
        size=torch.stack([spread(x).mean() for x in tokens]).numpy(),
        move=seen.diff(dim=0).square().mean((1, 2, 3)).sqrt().numpy(),
        # Rounding of a sum of about 100 terms.
        rise=(energies.diff(dim=0) > 1e-12 * energies[:-1].abs()).double().mean(-1).numpy(),
    )


@record
class Alignment:
    """Cosines between attention updates and −∂E/∂g of the attention energy of their own Q and K.

    Means over steps, images and tokens, the mean over the tokens of an image subtracted from both
    vectors. query: with the term of a token as a query (keys held). joint: with both terms. null,
    deviation: mean and standard deviation of `query` over random turns of the values in their
    heads (NaN where the update has a key side, or for fewer than two turns).
    """

    query: float
    joint: float
    null: float
    deviation: float


@torch.no_grad()
def align(
    network: Network, patches: Tensor, *, hidden: Tensor, turns: int = 20, seed: TorchSeed = 0
) -> Alignment:
    """The alignment of the trained steps of a network."""
    generator = torch_generator(seed)
    tokens = network.embed(patches, hidden)
    cosines: list[list[float]] = []
    for index in range(network.sizes.steps):
        parts = network.attend(tokens, index=index)
        as_query, as_key = attention_gradient(
            parts.seen, query_map=parts.query_map, key_map=parts.key_map
        )
        step = [_cosine(parts.update, as_query), _cosine(parts.update, as_query + as_key)]
        if network.arm != "energy":
            step += [
                _cosine(rotated_updates(parts, seed=generator), as_query) for _ in range(turns)
            ]
        cosines.append(step)
        tokens = network.step(tokens, index=index)
    query, joint, *turned = np.mean(cosines, axis=0)
    enough = len(turned) > 1
    return Alignment(
        query=float(query),
        joint=float(joint),
        null=float(np.mean(turned)) if enough else float("nan"),
        deviation=float(np.std(turned, ddof=1)) if enough else float("nan"),
    )


def _cosine(update: Tensor, gradient: Tensor) -> float:
    """Mean cosine of tokens between an update and −gradient, both less their mean token."""
    one, other = (x - x.mean(-2, keepdim=True) for x in (update, -gradient))
    return float(torch.nn.functional.cosine_similarity(one, other, dim=-1, eps=1e-30).mean())


def columns(table: dict[str, np.ndarray], name: str, *, at: Sequence[int]) -> np.ndarray:
    """The columns `name_0`, `name_1`, … of a table for the numbers `at`: (len(at), rows)."""
    return np.stack([table[f"{name}_{number}"] for number in at])
