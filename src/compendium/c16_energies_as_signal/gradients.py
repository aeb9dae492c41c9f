"""The most direct measure: does the gradient of an energy point where the labels want to go?

cos(∇E, ∇CE) over the weights of one layer, CE the cross-entropy of the best linear readout of the
mean token. Its null: the same images with permuted labels and the best readout for these. What the
two gradients share for other reasons than the labels (both may shrink a matrix, say) is in the
null, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from bookmaker.tables import Rows, Table
from compendium.c16_energies_as_signal.network import Shape, Weights, run
from compendium.c16_energies_as_signal.scores import FOLDER, SHAPE, STEPS, block_seeds, chosen
from compendium.c16_energies_as_signal.signals import mean_energy
from compendium.c16_energies_as_signal.training import split_digits, train_copies
from spinformer.core.checks import check_tensor
from spinformer.core.random import Seed, numpy_generator

KINDS = ("raw", "density")
MOMENTS = (0, 50, STEPS)  # updates of the supervised training at which gradients are compared
PERMUTATIONS = 16
IMAGES = 256
_RIDGE = 1e-2  # keeps the best readout finite where classes can be separated
_FIT_STEPS = 100


def best_readout(features: Tensor, *, labels: Tensor, classes: int = 10) -> tuple[Tensor, Tensor]:
    """Multinomial logistic regressions side by side, and how each pulls at its features.

    `features` (..., n, D), `labels` (..., n). Minimizes the mean cross-entropy plus ½·10⁻²‖W‖² by
    L-BFGS; returns the cross-entropies (...) and their gradients by the features (..., n, D). By
    the envelope theorem the readout need not be varied with them.
    """
    features = check_tensor("features", features).detach().double()
    count = features.shape[-2]
    padded = torch.cat([features, torch.ones_like(features[..., :1])], -1)
    matrix = torch.zeros(
        *features.shape[:-2], padded.shape[-1], classes, dtype=torch.float64, requires_grad=True
    )
    target = functional.one_hot(labels, classes).double()

    def entropy() -> Tensor:
        return -(target * torch.log_softmax(padded @ matrix, -1)).sum(-1).mean(-1)

    def cost() -> Tensor:
        return (entropy() + 0.5 * _RIDGE * matrix.square().sum((-1, -2))).sum()

    optimizer = torch.optim.LBFGS(
        [matrix], max_iter=_FIT_STEPS, tolerance_grad=1e-6, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = cost()
        loss.backward()
        return loss

    optimizer.step(closure)
    with torch.no_grad():
        wrong = (torch.softmax(padded @ matrix, -1) - target) / count
        return entropy(), wrong @ matrix[..., :-1, :].mT


def layer_cosines(
    weights: Weights,
    shape: Shape,
    *,
    tokens: Tensor,
    labels: Tensor,
    permutations: int,
    seed: Seed = 0,
) -> dict[str, np.ndarray]:
    """cos(∇E, ∇CE) of every copy and layer, by energy: (1 + permutations, C, L).

    tokens (C, n, N, pixels), labels (C, n). The first entry belongs to the labels as they are,
    the others to permuted ones.
    """
    generator = numpy_generator(seed)
    copies, count = labels.shape
    orders = [np.arange(count)] + [generator.permutation(count) for _ in range(permutations)]
    leaves = {name: weight.detach().requires_grad_() for name, weight in weights.items()}
    layers = [
        [name for name in leaves if name.startswith(f"{layer}.")] for layer in range(shape.layers)
    ]
    found = run(leaves, shape, tokens=tokens)
    features = found.states[-1].mean(-2)
    shuffled = torch.stack([labels[:, order] for order in orders])
    _, pulls = best_readout(
        features.expand(len(orders), *features.shape), labels=shuffled, classes=shape.classes
    )

    def by_layer(output: Tensor, pull: Tensor) -> list[Tensor]:
        """Gradients of Σ output·pull, one matrix (C, weights of the layer) a layer."""
        slopes = torch.autograd.grad(
            output, list(leaves.values()), pull, retain_graph=True, allow_unused=True
        )
        named = dict(zip(leaves, slopes, strict=True))
        return [
            torch.cat(
                [
                    torch.zeros_like(leaves[name]).flatten(1)
                    if named[name] is None
                    else named[name].flatten(1)
                    for name in names
                ],
                -1,
            )
            for names in layers
        ]

    energies = {}
    for kind in KINDS:
        mean = mean_energy(found, kind=kind).mean(-1)
        energies[kind] = by_layer(mean, torch.ones(copies))
    entropies = [by_layer(features, pull.to(features.dtype)) for pull in pulls]
    return {
        kind: np.array(
            [
                [
                    functional.cosine_similarity(one, other, dim=-1).tolist()
                    for one, other in zip(energies[kind], slopes, strict=True)
                ]
                for slopes in entropies
            ]
        ).transpose(0, 2, 1)
        for kind in KINDS
    }


def _cosine_rows(
    block: int, *, seeds: Sequence[int] | None = None, moments: Sequence[int] = MOMENTS
) -> Rows:
    """One row a moment of the supervised training, energy, layer and seed of the block."""
    seeds = block_seeds(block) if seeds is None else list(seeds)
    data = split_digits(seeds)
    kept = train_copies(
        SHAPE,
        signal="supervised",
        seeds=seeds,
        rates=[chosen("supervised")[0]] * len(seeds),
        data=data,
        steps=STEPS,
        keep=moments,
    )
    rows: Rows = []
    for moment in moments:
        found = layer_cosines(
            kept[moment],
            SHAPE,
            tokens=data.train[:, :IMAGES],
            labels=data.train_labels[:, :IMAGES],
            permutations=PERMUTATIONS,
            seed=block,
        )
        rows += null_rows(found, names={"moment": moment}, copies=[{"seed": s} for s in seeds])
    return rows


def null_rows(
    found: dict[str, np.ndarray], *, names: dict[str, int], copies: Sequence[dict[str, int]]
) -> Rows:
    """The cosine with the true labels beside mean and deviation of its null, a row each."""
    return [
        {
            **names,
            "energy": kind,
            "layer": layer,
            **copy,
            "cosine": float(values[0, index, layer]),
            "null": float(values[1:, index, layer].mean()),
            "deviation": float(values[1:, index, layer].std(ddof=1)),
        }
        for kind, values in found.items()
        for layer in range(values.shape[-1])
        for index, copy in enumerate(copies)
    ]


COSINE_TABLE = Table(path=FOLDER / "cosines.csv", units=[{"block": 0}], rows=_cosine_rows)
