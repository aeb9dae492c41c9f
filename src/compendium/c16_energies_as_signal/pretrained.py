"""The same cosine in the pretrained language model: energies against a sentence-pair loss.

The model has no readout of words, so a masked-word loss is out of reach. It was tuned to give
sentences that belong together similar mean tokens; the loss here is of that kind
[oord2018representation]: B stretches of a text are taken apart into their even and their odd
tokens, and the cosine of the mean tokens, times 20, must tell each half its other half. The null
pairs the halves at random.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from bookmaker.tables import Rows, Table
from compendium.c16_energies_as_signal.gradients import null_rows
from compendium.c16_energies_as_signal.network import Pass
from compendium.c16_energies_as_signal.scores import FOLDER
from compendium.c16_energies_as_signal.signals import mean_energy
from spinformer.core.random import Seed, numpy_generator
from spinformer.language.encoder import LanguageModel, embed, run_layer
from spinformer.language.minilm import load_model
from spinformer.language.text import sample_text, text_windows
from spinformer.language.untrained import random_weights

WEIGHTS = ("trained", "initial")
DRAWS = 10
PAIRS = 12
INSIDE = 32  # tokens of a stretch, half of which go to each half
PERMUTATIONS = 10
_SHARPNESS = 20.0


def pair_loss(states: Tensor, *, partners: Sequence[int]) -> Tensor:
    """Mean cross-entropy of finding `partners[i]`, the partner of half i, among all second halves.

    `states` (2B, N, D): pairs (2i, 2i + 1) of halves; the true partners are 0 … B − 1.
    """
    means = functional.normalize(states.mean(-2), dim=-1)
    scores = _SHARPNESS * means[0::2] @ means[1::2].mT
    return functional.cross_entropy(scores, torch.tensor(list(partners)))


def token_halves(windows: Tensor) -> Tensor:
    """Windows (B, N), N even, as pairs of rows (2B, N/2 + 1): the even, then the odd inner tokens.

    The first and last token of a window stand at the ends of both halves.
    """
    if windows.ndim != 2 or windows.shape[1] < 4 or windows.shape[1] % 2:
        raise ValueError(f"windows must have shape (B, N), N >= 4 even, got {tuple(windows.shape)}")
    ends = windows[:, :1], windows[:, -1:]
    halves = [torch.cat([ends[0], windows[:, 1 + k : -1 : 2], ends[1]], 1) for k in (0, 1)]
    return torch.stack(halves, 1).flatten(0, 1)


def model_cosines(
    model: LanguageModel, windows: Tensor, *, permutations: int, seed: Seed = 0
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """cos(∇E, ∇ pair loss) of every layer by energy, (1 + permutations, 1, L), and the losses.

    windows (2B, N): token numbers of pairs. The first entry belongs to the true pairs.
    """
    generator = numpy_generator(seed)
    leaves = {name: weight.detach().requires_grad_() for name, weight in model.weights.items()}
    open_model = LanguageModel(
        weights=leaves, architecture=model.architecture, tokenizer=model.tokenizer
    )
    layers = [
        [leaf for name, leaf in leaves.items() if name.startswith(f"encoder.layer.{layer}.")]
        for layer in range(model.architecture.layers)
    ]
    states, traces = embed(open_model, windows).detach(), []
    for layer in range(model.architecture.layers):
        traces.append(run_layer(open_model, layer, inputs=states))
        states = traces[-1].outputs
    found = Pass(
        states=[],
        queries=[trace.queries.unsqueeze(0) for trace in traces],
        keys=[trace.keys.unsqueeze(0) for trace in traces],
    )
    every = [leaf for names in layers for leaf in names]

    def by_layer(loss: Tensor) -> list[Tensor]:
        slopes = iter(
            torch.autograd.grad(
                loss, every, retain_graph=True, allow_unused=True, materialize_grads=True
            )
        )
        return [torch.cat([next(slopes).flatten() for _ in names]) for names in layers]

    count = len(windows) // 2
    orders = [np.arange(count)] + [generator.permutation(count) for _ in range(permutations)]
    energies = {kind: by_layer(mean_energy(found, kind=kind).mean()) for kind in ("raw", "density")}
    cosines: dict[str, list[list[list[float]]]] = {kind: [] for kind in energies}
    losses = []
    for order in orders:
        loss = pair_loss(states, partners=order.tolist())
        losses.append(float(loss.detach()))
        slopes = by_layer(loss)
        for kind, values in energies.items():
            pairs = zip(values, slopes, strict=True)
            cosines[kind].append([[float(_cosine(one, other)) for one, other in pairs]])
    return {kind: np.array(values) for kind, values in cosines.items()}, np.array(losses)


def _cosine(one: Tensor, other: Tensor) -> Tensor:
    return functional.cosine_similarity(one, other, dim=0)


def _model_rows(weights: str, draw: int) -> Rows:
    """One row an energy and layer: pairs of a random part of the essay, float32."""
    model = load_model(dtype=torch.float32)
    if weights == "initial":
        model = random_weights(model, "initial", seed=draw)
    generator = numpy_generator(draw)
    windows = text_windows(model, sample_text(), INSIDE + 2)
    drawn = windows[torch.tensor(generator.permutation(len(windows))[:PAIRS])]
    found, losses = model_cosines(
        model, token_halves(drawn), permutations=PERMUTATIONS, seed=generator
    )
    rows = null_rows(found, names={}, copies=[{"pairs": PAIRS}])
    return [
        {**row, "loss": float(losses[0]), "null loss": float(losses[1:].mean())} for row in rows
    ]


MODEL_TABLE = Table(
    path=FOLDER / "pretrained.csv",
    units=[{"weights": weights, "draw": draw} for weights in WEIGHTS for draw in range(DRAWS)],
    rows=_model_rows,
)
