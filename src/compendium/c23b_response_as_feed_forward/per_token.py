"""What a feed-forward network can learn of the response, one token at a time.

Tokens, responses and the unit convention are those of `compendium.c23_anatomy.study`. The
yardstick is the share of the variance of the response that the token itself decides; the pupil is
a network with one hidden layer, as a transformer's feed-forward is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from compendium.c23_anatomy.study import dissect, draw_tokens
from spinformer.core.checks import check_integer, check_real, check_tensor
from spinformer.core.random import TorchSeed, torch_generator
from spinformer.core.records import record


def own_token_share(
    bilinear: Tensor,
    *,
    sites: int,
    owners: int,
    environments: int,
    seed: TorchSeed,
    prototypes: Tensor | None = None,
    spread: float = 0.5,
    **options: Any,
) -> float:
    """Share of the variance of the response of a token that its own field decides.

    Var(E[r_i | h_i]) / Var(r_i), from `owners` tokens, each put into the same number of
    independent draws of the other N − 1 tokens, with the unbiased estimate of the variance within
    (one-way analysis of variance). The R² that no function of the own field can exceed.

    >>> options = {"sites": 3, "owners": 8, "environments": 4, "seed": 0, "beta": 1.0}
    >>> own_token_share(torch.eye(2).double(), **options) < 1
    True
    """
    dim = check_tensor("bilinear", bilinear, square=True).shape[-1]
    owners = check_integer("owners", owners, low=2)
    environments = check_integer("environments", environments, low=2)
    fields = draw_tokens(
        owners * environments, sites=sites, dim=dim, seed=seed, prototypes=prototypes, spread=spread
    )
    fields = fields.reshape(owners, environments, sites, dim).clone()
    fields[:, :, 0] = fields[:, :1, 0]
    response = dissect(fields, bilinear=bilinear, **options).response[:, :, 0]
    return share_between_groups(response)


def share_between_groups(values: Tensor) -> float:
    """Var(E[y | group]) / Var(y) of `values` (groups, members, channels), summed over channels.

    Unbiased in both variances (one-way analysis of variance), so it may fall below zero by
    chance. Raises ValueError for less than two groups of two members.

    >>> share_between_groups(torch.tensor([[[0.0], [0.0]], [[1.0], [1.0]]]))
    1.0
    """
    values = check_tensor("values", values, ndim=3)
    if min(values.shape[:2]) < 2:
        raise ValueError(f"values must hold 2 groups of 2, got shape {tuple(values.shape)}")
    within = values.var(dim=1).mean(dim=0).sum()
    if not bool((values != values[:1, :1]).any()):
        raise ValueError("values must vary, all of them are alike")
    between = values.mean(dim=1).var(dim=0).sum() - within / values.shape[1]
    return float(between / (between + within))


def per_token_data(
    fields: Tensor, *, bilinear: Tensor, **options: Any
) -> tuple[dict[str, Tensor], Tensor]:
    """What a per-token network may be given, and the response that it should find.

    `fields` (systems, N, D). Inputs by name, a row a token: "own field" h_i, "own ⟨u⟩" ⟨u_i⟩, and
    "both" side by side; targets (systems · N, D) are the responses.

    >>> h = draw_tokens(2, sites=3, dim=4, seed=0)
    >>> inputs, targets = per_token_data(h, bilinear=torch.eye(4).double(), beta=1.0)
    >>> inputs["both"].shape, targets.shape
    (torch.Size([6, 8]), torch.Size([6, 4]))
    """
    parts = dissect(fields, bilinear=bilinear, **options)
    own, spins = fields.flatten(0, -2), parts.spins.flatten(0, -2)
    inputs = {"own field": own, "own ⟨u⟩": spins, "both": torch.cat([own, spins], -1)}
    return inputs, parts.response.flatten(0, -2)


@record
class PerTokenFit:
    """R² of a trained per-token network, pooled over channels.

    `train` and `test` on the two parts of its data, `elsewhere` on data of another kind (NaN if
    none was given).
    """

    width: int
    train: float
    test: float
    elsewhere: float


def fit_per_token(
    inputs: Tensor,
    *,
    targets: Tensor,
    width: int,
    steps: int,
    seed: TorchSeed,
    elsewhere: tuple[Tensor, Tensor] | None = None,
    batch: int = 256,
    rate: float = 3e-3,
    held_out: float = 0.25,
) -> PerTokenFit:
    """Train x ↦ W₂ gelu(W₁x + b₁) + b₂ on one token at a time, as a transformer's feed-forward.

    `inputs` (samples, features), `targets` (samples, channels); the last `held_out` share of the
    samples is the test set, so give whole systems in order. `elsewhere` is a further pair to
    test on. Inputs are standardised per feature, targets by one number, all from the training
    set. `width` 0 is linear regression. Adam (Kingma and Ba 2015) with a cosine schedule, double
    precision.

    >>> x = torch.arange(8.0).reshape(8, 1)
    >>> f"{fit_per_token(x, targets=2 * x, width=0, steps=1, seed=0).train:.6f}"
    '1.000000'
    """
    inputs = check_tensor("inputs", inputs, ndim=2).detach().double()
    targets = check_tensor("targets", targets, shape=(inputs.shape[0], None)).detach().double()
    width = check_integer("width", width, low=0)
    steps = check_integer("steps", steps, low=1)
    batch = check_integer("batch", batch, low=1)
    rate = check_real("rate", rate, low=0.0, open_low=True)
    held_out = check_real("held_out", held_out, low=0.01, high=0.9)
    cut = int(inputs.shape[0] * (1 - held_out))
    if min(cut, inputs.shape[0] - cut) < 2:
        raise ValueError(
            "inputs must hold 2 samples to train on and 2 to test on, held_out leaves "
            f"{cut} and {inputs.shape[0] - cut}"
        )
    if elsewhere is not None:
        check_tensor("elsewhere[0]", elsewhere[0], shape=(None, inputs.shape[1]))
        check_tensor("elsewhere[1]", elsewhere[1], shape=(len(elsewhere[0]), targets.shape[1]))
    shift, scale = inputs[:cut].mean(0), inputs[:cut].std(0).clamp_min(1e-12)
    centre, size = targets[:cut].mean(0), targets[:cut].std().clamp_min(1e-12)

    def prepared(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return (x.detach().double() - shift) / scale, (y.detach().double() - centre) / size

    x, y = prepared(inputs, targets)
    network: Callable[[Tensor], Tensor]
    if width:
        generator = torch_generator(seed)
        # torch draws initial weights from its global state and nowhere else: it is lent ours.
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(generator.get_state())
            network = _train(x[:cut], y[:cut], width, steps, batch, rate)
            generator.set_state(torch.get_rng_state())
    else:
        solution = torch.linalg.lstsq(x[:cut], y[:cut]).solution

        def network(x: Tensor) -> Tensor:
            return x @ solution

    def score(x: Tensor, y: Tensor) -> float:
        with torch.no_grad():
            wrong = float((network(x) - y).square().sum())
        spread = float((y - y.mean(0)).square().sum())
        if spread == 0:
            raise ValueError("targets must vary, in the training set, the test set and elsewhere")
        return 1 - wrong / spread

    return PerTokenFit(
        width=width,
        train=score(x[:cut], y[:cut]),
        test=score(x[cut:], y[cut:]),
        elsewhere=float("nan") if elsewhere is None else score(*prepared(*elsewhere)),
    )


def _train(x: Tensor, y: Tensor, width: int, steps: int, batch: int, rate: float) -> nn.Module:
    layers = nn.Linear(x.shape[1], width), nn.GELU(), nn.Linear(width, y.shape[1])
    network = nn.Sequential(*layers).double()
    optimizer = torch.optim.Adam(network.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        pick = torch.randint(len(x), (batch,))
        optimizer.zero_grad()
        (network(x[pick]) - y[pick]).square().mean().backward()
        optimizer.step()
        schedule.step()
    return network
