"""Training stacks of spin systems on images, and watching what happens inside.

Tokens are patches of the digits of `images`, the stacks those of `classifiers`. Probes measure the
collective behaviour of every layer on the same images at any moment of the training.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from spinformer.core.checks import check_choice, check_flag, check_integer, check_real, check_tensor
from spinformer.core.random import TorchSeed, torch_generator
from spinformer.core.records import record
from spinformer.core.statistics import Estimate, mean_estimate
from spinformer.spins.modules.spin_transformer import SpinTransformerModule
from spinformer.studies.classifiers import TokenClassifier
from spinformer.studies.images import DIGIT_SHAPE, digit_labels, digits


@record
class TokenData:
    """Images as tokens (images, N, pixels of a patch), centred and scaled; labels are 0 to 9."""

    train_tokens: Tensor
    train_labels: Tensor
    test_tokens: Tensor
    test_labels: Tensor


@record
class LayerProbe:
    """One layer on a set of images; averages over images, spins and heads.

    `polarization`: norm of the mean spin <sigma_i> over sqrt(D), 0 free to 1 frozen.
    `correlation`: <u_i . u_j> over pairs of different spins. `connected`: the same less
    <u_i> . <u_j>, the part that is not explained by the mean spins. `response`: norm of the
    response to the couplings over that of the whole magnetisation. (These four are NaN for a
    transformer layer, which has no spins.) `similarity`: cosine between different tokens of an
    image in the layer's output. `turn`: cosine between a token before and after the layer.
    `separation`: share of the variance of the mean output token that lies between the classes.
    """

    polarization: float
    correlation: float
    connected: float
    response: float
    similarity: float
    turn: float
    separation: float


@record
class TrainingRun:
    """What a training left: per epoch the mean loss and the accuracies; probes by epoch."""

    loss: list[float]
    train_accuracy: float
    test_accuracy: list[float]
    probes: dict[int, list[LayerProbe]]


def digits_as_tokens(
    *,
    patch: int = 2,
    test_share: float = 1 / 3,
    seed: TorchSeed = 0,
    dtype: torch.dtype = torch.float32,
) -> TokenData:
    """The 1797 handwritten digits of 8 x 8 pixels, cut into square patches of `patch` pixels.

    `patch` is 1, 2 or 4 (64, 16 or 4 tokens). Images are shuffled by `seed` before `test_share`
    of them is set aside; tokens are centred and scaled by mean and deviation of the training set.

    >>> digits_as_tokens(patch=4).train_tokens.shape
    torch.Size([1198, 4, 16])
    """
    check_choice("patch", patch, (1, 2, 4))
    check_real("test_share", test_share, low=0.01, high=0.99)
    # Back to the grey values 0 … 16, integers: their sums have no rounding.
    images, labels = 8.0 * (digits() + 1.0), digit_labels()
    side = DIGIT_SHAPE[0] // patch
    pixels = torch.tensor(images, dtype=dtype).reshape(-1, side, patch, side, patch)
    tokens = pixels.permute(0, 1, 3, 2, 4).reshape(len(labels), side * side, patch * patch)
    order = torch.randperm(len(labels), generator=torch_generator(seed))
    tokens, targets = tokens[order], torch.tensor(labels)[order]
    held = round(test_share * len(labels))
    train = tokens[held:]
    tokens = (tokens - train.mean()) / train.std()
    return TokenData(
        train_tokens=tokens[held:],
        train_labels=targets[held:],
        test_tokens=tokens[:held],
        test_labels=targets[:held],
    )


@torch.no_grad()
def accuracy(model: TokenClassifier, tokens: Tensor, *, labels: Tensor) -> float:
    """Share of images whose largest logit is their label.

    >>> model = TokenClassifier("spins", tokens=4, pixels=1, dim=8, heads=2)
    >>> tokens = torch.ones(5, 4, 1)
    >>> accuracy(model, tokens, labels=model(tokens).argmax(-1))
    1.0
    """
    _check_labels(tokens, labels)
    return float((model(tokens).argmax(-1) == labels).double().mean())


@torch.no_grad()
def probe_layers(model: TokenClassifier, tokens: Tensor, *, labels: Tensor) -> list[LayerProbe]:
    """The collective behaviour of every layer for these images, first layer first.

    >>> model = TokenClassifier("spins", tokens=4, pixels=1, dim=8, heads=2, response=False)
    >>> probes = probe_layers(model, torch.randn(5, 4, 1), labels=torch.arange(5))
    >>> [probe.response for probe in probes]
    [0.0, 0.0]
    """
    _check_labels(tokens, labels)
    state, probes = model.embed(tokens), []
    for layer in model.layers:
        before = state
        polarization = correlation = connected = response = float("nan")
        if isinstance(layer, SpinTransformerModule):
            state, parts = layer(before, return_parts=True)
            mean = parts.residual + parts.mixing + parts.onsager
            size = layer.dim // layer.heads
            heads = mean.unflatten(-1, (layer.heads, size)).transpose(1, 2) / size**0.5
            polarization = float(heads.norm(dim=-1).mean())
            correlation = _off_diagonal(parts.correlation)
            connected = correlation - _off_diagonal(heads @ heads.mT)
            response = float(parts.response.norm() / parts.magnetization.norm())
        else:
            state = layer(before)
        unit = nn.functional.normalize(state, dim=-1)
        probes.append(
            LayerProbe(
                polarization=polarization,
                correlation=correlation,
                connected=connected,
                response=response,
                similarity=_off_diagonal(unit @ unit.mT),
                turn=float(nn.functional.cosine_similarity(before, state, dim=-1).mean()),
                separation=_between_classes(state.mean(-2), labels),
            )
        )
    return probes


def train(
    model: TokenClassifier,
    data: TokenData,
    *,
    epochs: int = 20,
    batch: int = 100,
    rate: float = 3e-3,
    seed: TorchSeed = 0,
    probe_at: tuple[int, ...] = (),
    progress: bool = False,
) -> TrainingRun:
    """Adam on the cross-entropy, the rate falling to zero along a cosine.

    `probe_at` lists epochs after which the layers are probed on the test images (0: before
    training). `seed` of the order of the images. RuntimeError if the loss is no longer finite.

    >>> data = digits_as_tokens(patch=4)
    >>> model = TokenClassifier("spins", tokens=4, pixels=16, dim=8, heads=2, depth=1)
    >>> len(train(model, data, epochs=1).loss)
    1
    """
    check_integer("epochs", epochs, low=1)
    check_integer("batch", batch, low=1)
    check_real("rate", rate, low=0.0, open_low=True)
    check_flag("progress", progress)
    for index, epoch in enumerate(probe_at):
        check_integer(f"probe_at[{index}]", epoch, low=0, high=epochs)
    _check_labels(data.train_tokens, data.train_labels)
    generator = torch_generator(seed)
    count = len(data.train_labels)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * -(-count // batch))
    seen, held = data.test_tokens, data.test_labels
    probes = {0: probe_layers(model, seen, labels=held)} if 0 in probe_at else {}
    losses, tested = [], []
    for epoch in tqdm(range(1, epochs + 1), disable=not progress, desc="epochs"):
        total = 0.0
        for chosen in torch.randperm(count, generator=generator).split(batch):
            loss = nn.functional.cross_entropy(
                model(data.train_tokens[chosen]), data.train_labels[chosen]
            )
            # Before a step that would make every weight NaN.
            if not bool(torch.isfinite(loss.detach())):
                raise RuntimeError(f"the loss is no longer finite in epoch {epoch}: lower rate")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += float(loss.detach()) * len(chosen)
        losses.append(total / count)
        tested.append(accuracy(model, seen, labels=held))
        if epoch in probe_at:
            probes[epoch] = probe_layers(model, seen, labels=held)
    trained = accuracy(model, data.train_tokens, labels=data.train_labels)
    return TrainingRun(loss=losses, train_accuracy=trained, test_accuracy=tested, probes=probes)


def probe_table(runs: Sequence[TrainingRun], *, name: str, epoch: int) -> np.ndarray:
    """Values of the probe `name` after `epoch`, (trainings, layers).

    >>> names = ("correlation", "connected", "response", "similarity", "turn", "separation")
    >>> probe = LayerProbe(polarization=0.5, **dict.fromkeys(names, 0.0))
    >>> run = TrainingRun(loss=[], train_accuracy=0.0, test_accuracy=[], probes={0: [probe, probe]})
    >>> probe_table([run], name="polarization", epoch=0)
    array([[0.5, 0.5]])
    """
    return np.array([[getattr(layer, name) for layer in run.probes[epoch]] for run in runs])


def probe_change(runs: Sequence[TrainingRun], *, name: str, first: int, last: int) -> np.ndarray:
    """By how much the probe `name` is larger after epoch `last` than after `first`, as there.

    >>> names = ("correlation", "connected", "response", "similarity", "turn", "separation")
    >>> one, two = (LayerProbe(polarization=x, **dict.fromkeys(names, 0.0)) for x in (0.5, 2.0))
    >>> probes = {0: [one], 3: [two]}
    >>> run = TrainingRun(loss=[], train_accuracy=0.0, test_accuracy=[], probes=probes)
    >>> probe_change([run], name="polarization", first=0, last=3)
    array([[1.5]])
    """
    return probe_table(runs, name=name, epoch=last) - probe_table(runs, name=name, epoch=first)


def over_trainings(values: np.ndarray) -> Estimate:
    """Mean over the first axis, which counts independent trainings, and its standard error.

    The error of a single training is unknown: NaN.

    >>> over_trainings(np.array([[1.0], [3.0]]))
    Estimate(value=float64[1] in [2, 2], error=float64[1] in [1, 1], samples=2)
    """
    values = np.asarray(values, dtype=float)
    if len(values) > 1:
        return mean_estimate(values)
    return Estimate(value=values[0], error=np.full_like(values[0], np.nan), samples=1)


def _check_labels(tokens: Tensor, labels: Tensor) -> None:
    check_tensor("tokens", tokens, ndim=3)
    if not isinstance(labels, Tensor) or labels.is_floating_point():
        raise TypeError("labels must be a tensor of integers")
    if tuple(labels.shape) != tokens.shape[:1] or not len(labels):
        raise ValueError(f"labels must have shape ({len(tokens)},), got {tuple(labels.shape)}")


def _off_diagonal(matrix: Tensor) -> float:
    """Mean over pairs of different tokens of (..., N, N)."""
    sites = matrix.shape[-1]
    total = matrix.sum((-1, -2)) - matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
    return float((total / (sites * (sites - 1))).mean())


def _between_classes(points: Tensor, labels: Tensor) -> float:
    centred = points - points.mean(0)
    between = torch.zeros((), dtype=points.dtype)
    for label in labels.unique():
        members = centred[labels == label]
        between = between + len(members) * members.mean(0).square().sum()
    return float(between / centred.square().sum())
