"""Does an attention step go down its own overlap energy? Per layer, per head, against a null.

With o_h = Σ_j a_j v_j what head h returns for a token, and p_h = Σ_j a_j (k_j − k̄) what it would
return with its centered keys as values, the layer's step is Σ_h W_O^h o_h + bias and the descent
direction −∇Σ_h U_h = Σ_h W_Q^hᵀ p_h (see `energies`). Both are *centered* here: their means over
the tokens of a window are removed, since a step that is the same for all tokens tells nothing about
what a token asked for. Cosines are those of the whole (N, D) arrays of a window.

The null keeps the model, the text, the attention maps and the descent directions, and breaks only
which way a head's output points: every o_h is turned by a random rotation and written by the output
matrix of a random head, W_O^π(h) R_h o_h.

Shapes: H heads of width d, model width D; entries of (H, H) have the head that writes first.
"""

from __future__ import annotations

import numpy as np
import torch

from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.language.encoder import LanguageModel, LayerTrace
from spinformer.language.heads import random_rotations


@record
class StepAlignment:
    """Centered cosines of a layer's attention step with the descent of its overlap energy.

    `layer` (B,): the whole step against the whole descent, one number a sequence; `pooled`: of
    all sequences together; `null` (draws,): `pooled` with heads turned and permuted; `heads`
    (B, H): each head's part of the step against the descent of its own energy alone.
    """

    layer: np.ndarray
    pooled: float
    null: np.ndarray
    heads: np.ndarray


@torch.no_grad()
def step_alignment(
    model: LanguageModel, trace: LayerTrace, *, draws: int = 40, seed: Seed = 0
) -> StepAlignment:
    """Compare a layer's attention step with the descent of its own energy (see StepAlignment).

    `draws` may be 0.
    """
    layer = trace.layer
    generator = numpy_generator(seed)
    written, asked = _maps(model, layer)
    returned, wanted = _returned(trace)
    heads = model.architecture.heads
    # Everything below needs only second moments of what the heads return, not the steps themselves.
    cross, own, descent = returned.mT @ wanted, returned.mT @ returned, wanted.mT @ wanted
    pairs = _by_heads(cross * (written.mT @ asked), heads)
    step = _by_heads(own * (written.mT @ written), heads)
    down = _by_heads(descent * (asked.mT @ asked), heads)
    length = (step.sum((-2, -1)) * down.sum((-2, -1))).sqrt()
    alone = (step.diagonal(dim1=-2, dim2=-1) * down.diagonal(dim1=-2, dim2=-1)).sqrt()
    pooled_cross, pooled_own, asked_length = cross.sum(0), own.sum(0), down.sum()

    def pooled(output: torch.Tensor) -> float:
        """Cosine over all sequences together with `output` (D, H·d) in the place of W_O."""
        along = (pooled_cross * (output.mT @ asked)).sum()
        return float(along / ((pooled_own * (output.mT @ output)).sum() * asked_length).sqrt())

    null = []
    for _ in range(draws):
        turns = random_rotations(trace.values, seed=generator)
        order = torch.from_numpy(generator.permutation(heads))
        blocks = written.unflatten(-1, (heads, -1))[:, order]
        null.append(pooled(torch.einsum("Dhj,hji->Dhi", blocks, turns).flatten(-2)))
    return StepAlignment(
        layer=(pairs.sum((-2, -1)) / length).numpy(),
        pooled=pooled(written),
        null=np.array(null),
        heads=(pairs.diagonal(dim1=-2, dim2=-1) / alone).numpy(),
    )


@torch.no_grad()
def weight_alignment(model: LanguageModel, layer: int) -> np.ndarray:
    """Cosines between W_O W_V of head h and W_QᵀW_K of head g, from the weights alone: (H, H).

    On the diagonal stands what one head has of the tie W_O W_V = W_QᵀW_K, with which every step is
    a descent [hoover2023energy]; the other entries, of mismatched heads, are its null.
    """
    written, asked = _maps(model, layer)
    name = f"encoder.layer.{layer}.attention.self"
    value, key = (model.weights[f"{name}.{which}.weight"] for which in ("value", "key"))
    heads = model.architecture.heads

    # ⟨A_h B_h, C_g D_g⟩ = tr(A_hᵀC_g · D_g B_hᵀ): entries of two small matrices.
    both = _by_heads((written.mT @ asked) * (value @ key.mT), heads)
    one = _by_heads((written.mT @ written) * (value @ value.mT), heads).diagonal()
    two = _by_heads((asked.mT @ asked) * (key @ key.mT), heads).diagonal()
    return (both / (one[:, None] * two).sqrt()).numpy()


def _maps(model: LanguageModel, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Output map W_O and transposed query map W_Qᵀ, both (D, H·d)."""
    name = f"encoder.layer.{layer}.attention"
    output, query = (model.weights[f"{name}.{w}.weight"] for w in ("output.dense", "self.query"))
    return output, query.mT


def _returned(trace: LayerTrace) -> tuple[torch.Tensor, torch.Tensor]:
    """o and p of all heads, side by side and without their means over tokens: (B, N, H·d)."""
    attention = torch.softmax(trace.beta * trace.queries @ trace.keys.mT, dim=-1)
    # The mean key adds the same to every token and goes with the mean.
    flat = [(attention @ v).transpose(-2, -3).flatten(-2) for v in (trace.values, trace.keys)]
    output, pulled = (values - values.mean(-2, keepdim=True) for values in flat)
    return output, pulled


def _by_heads(products: torch.Tensor, heads: int) -> torch.Tensor:
    """Sums of (..., H·d, H·d) over the entries of each pair of heads: (..., H, H)."""
    return products.unflatten(-1, (heads, -1)).unflatten(-3, (heads, -1)).sum((-3, -1))
