"""Training many seeds of one arm at once, and what tuning chooses.

All seeds of an arm are one stack of weights, and `torch.func.vmap` runs them side by side; Adam
treats each number on its own, so that the trainings do not know of each other. A seed fixes the
initial weights, the order of the images and which patches are hidden; the arms of a task see equal
data in equal order.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from compendium.c18_energy_transformer.networks import Network, Sizes
from compendium.common.token_tasks import TokenData, digits_as_tokens
from spinformer.core.checks import check_real
from spinformer.core.random import torch_generator
from spinformer.core.records import record

HIDDEN = 8
VALIDATION = 200


@record
class Start:
    """What one of the networks of a stack is trained from."""

    seed: int
    rate: float
    step_size: float


@record
class Trained:
    """Networks of one arm after training, and snapshots by epoch, in the order of the starts."""

    networks: list[Network]
    snapshots: dict[int, list[Network]]


def split_data(split: int) -> TokenData:
    """The digits as 16 patches of 4 pixels, shuffled by `split`; a third is the test set.

    The mean image of the training set is subtracted.
    """
    data = digits_as_tokens(patch=2, seed=split)
    return _centred(data.train_tokens, data.train_labels, data.test_tokens, data.test_labels)


def tuning_data(splits: Sequence[int]) -> TokenData:
    """Images that are in none of the test sets of `splits`: the last 200 of them for validation.

    One tuning serves all splits, and no test image has a part in it.
    """
    data = digits_as_tokens(patch=2, seed=splits[0])
    held = len(data.test_labels)
    count = held + len(data.train_labels)
    # The shuffles of `digits_as_tokens`.
    orders = [torch.randperm(count, generator=torch_generator(split)) for split in splits]
    free = torch.ones(count - held, dtype=torch.bool)
    for order in orders[1:]:
        free &= ~torch.isin(orders[0][held:], order[:held])
    tokens, labels = data.train_tokens[free], data.train_labels[free]
    cut = -VALIDATION
    return _centred(tokens[:cut], labels[:cut], tokens[cut:], labels[cut:])


def _centred(train: Tensor, labels: Tensor, test: Tensor, test_labels: Tensor) -> TokenData:
    mean = train.mean(0)
    return TokenData(
        train_tokens=train - mean,
        train_labels=labels,
        test_tokens=test - mean,
        test_labels=test_labels,
    )


def hidden_patches(
    count: int, *, task: str, seed: int | torch.Generator, tokens: int = 16
) -> Tensor:
    """Which patches of `count` images are hidden, (count, tokens): half for "patches", or none."""
    if task == "classes":
        return torch.zeros(count, tokens, dtype=torch.bool)
    noise = torch.rand(count, tokens, generator=torch_generator(seed))
    return noise.argsort(-1).argsort(-1) < HIDDEN


def train_stack(
    arm: str,
    *,
    task: str,
    data: TokenData,
    starts: Sequence[Start],
    epochs: int,
    batch: int = 32,
    keep: Sequence[int] = (),
    sizes: Sizes | None = None,
) -> Trained:
    """Networks of `arm`, one from each start: Adam, the rates falling to zero along a cosine.

    Cross-entropy of the classes, or mean square error of the hidden pixels. `keep` lists epochs
    after which snapshots are taken (0: before training). Raises ValueError for bad numbers.
    """
    networks = [
        Network(arm, task=task, step_size=start.step_size, seed=start.seed, sizes=sizes)
        for start in starts
    ]
    first, buffers = torch.func.stack_module_state(networks)
    first = {name: value.detach() for name, value in first.items()}
    rates = torch.tensor([check_real("rate", start.rate, low=0.0) for start in starts])
    # Weights are first + rate * moved. Adam's steps do not depend on the scale of a gradient, so
    # that Adam with rate 1 on `moved` is Adam with a rate of its own for each network.
    moved = {name: torch.zeros_like(value, requires_grad=True) for name, value in first.items()}

    def weights() -> dict[str, Tensor]:
        return {
            name: value + rates.view(-1, *[1] * (value.ndim - 1)) * moved[name]
            for name, value in first.items()
        }

    def unstack() -> list[Network]:
        stacked = {name: value.detach() for name, value in weights().items()} | buffers
        for index, network in enumerate(networks):
            network.load_state_dict({name: value[index] for name, value in stacked.items()})
        return copy.deepcopy(networks)

    run = _vectorized(networks[0])
    generators = [torch_generator(1_000_003 + start.seed) for start in starts]
    count = len(data.train_labels)
    optimizer = torch.optim.Adam(moved.values(), lr=1.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * -(-count // batch))
    snapshots = {0: unstack()} if 0 in keep else {}
    for epoch in range(1, epochs + 1):
        order = torch.stack([torch.randperm(count, generator=g) for g in generators])
        for chosen in order.split(batch, dim=1):
            patches = data.train_tokens[chosen]
            hidden = torch.stack(
                [hidden_patches(chosen.shape[1], task=task, seed=g) for g in generators]
            )
            answers = run(weights(), buffers, patches, hidden)
            if task == "classes":
                labels = data.train_labels[chosen]
                loss = functional.cross_entropy(answers.flatten(0, 1), labels.flatten())
            else:
                loss = (answers - patches)[hidden].square().mean()
            # Of the mean over the stack each network gets the gradient it would have alone.
            (loss * len(starts)).backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
        if epoch in keep:
            snapshots[epoch] = unstack()
    return Trained(networks=unstack(), snapshots=snapshots)


@torch.no_grad()
def score(answers: Tensor, *, patches: Tensor, labels: Tensor, hidden: Tensor) -> float:
    """Accuracy of logits (B, classes), or of patches (B, N, pixels) the unexplained variance.

    That is the square error of hidden pixels over their mean square, which is the error of the
    mean image.
    """
    if answers.ndim == 2:
        return float((answers.argmax(-1) == labels).double().mean())
    wrong = (answers - patches)[hidden].square().mean()
    return float(wrong / patches[hidden].square().mean())


def _vectorized(model: Network) -> Callable[..., Tensor]:
    def run(
        weights: dict[str, Tensor], buffers: dict[str, Tensor], patches: Tensor, hidden: Tensor
    ) -> Tensor:
        answer: Tensor = torch.func.functional_call(model, (weights, buffers), (patches, hidden))
        return answer

    return torch.func.vmap(run)
