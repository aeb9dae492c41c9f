"""Training of one pooling for many seeds at once, with everything tuned on validation bags."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from compendium.c19_hopfield_layer.data import TARGET, Bags, draw_bags
from compendium.c19_hopfield_layer.models import STILL, BagClassifier, has_memory
from spinformer.core.random import torch_generator
from spinformer.core.records import record
from spinformer.hopfield.fixed_points import effective_entries
from spinformer.hopfield.layer import HopfieldLayer

RATES = (3e-3, 1e-2)
SHARPNESS = (1.0, 4.0)
BATCH = 16
LOOKS = 5  # moments at which a training may have stopped


@record
class BagTraining:
    """What was chosen by the validation bags of each seed, and how it does on its test bags.

    models: one per seed. accuracy, loss: (seeds,), on test bags; rate, sharpness: (seeds,).
    """

    models: list[BagClassifier]
    accuracy: Tensor
    loss: Tensor
    rate: Tensor
    sharpness: Tensor


def train_bags(
    pooling: str,
    *,
    rule: str,
    bags: int,
    seeds: Sequence[int],
    steps: int = 160,
    held: int = 200,
    rates: Sequence[float] = RATES,
) -> BagTraining:
    """Train `pooling` for every seed on `bags` bags by Adam, `steps` updates of 16 bags.

    Validation and test bags number `held` each. The models of all seeds are one batched model
    (`torch.vmap`); a training of one seed alone gives the same numbers up to rounding. For each
    seed the rate, the starting β (of layers that have one) and one of five moments are chosen by
    the cross-entropy of the validation bags.
    """
    parts = {
        part: [draw_bags(count, rule=rule, part=part, seed=seed) for seed in seeds]
        for part, count in (("train", bags), ("validation", held), ("test", held))
    }
    images = {part: torch.stack([x.images for x in drawn]) for part, drawn in parts.items()}
    labels = {part: torch.stack([x.labels for x in drawn]) for part, drawn in parts.items()}
    best = torch.full((len(seeds),), torch.inf)
    scores = {name: torch.zeros(len(seeds)) for name in ("accuracy", "loss", "rate", "sharpness")}
    kept: dict[str, Tensor] = {}
    for sharpness in SHARPNESS if has_memory(pooling) else (1.0,):
        for rate in rates:
            models = [_fresh(pooling, sharpness, seed) for seed in seeds]
            run, parameters = _batched(models)
            optimizer = torch.optim.Adam(parameters.values(), lr=rate)
            orders = [torch_generator(seed) for seed in seeds]
            for step in range(1, steps + 1):
                chosen = torch.stack(
                    [torch.randint(bags, (min(BATCH, bags),), generator=g) for g in orders]
                )
                rows = torch.arange(len(seeds)).unsqueeze(1)
                logits = run(parameters, images["train"][rows, chosen])
                loss = _cross_entropy(logits, labels["train"][rows, chosen])
                optimizer.zero_grad()
                loss.sum().backward()
                optimizer.step()
                if step % (steps // LOOKS):
                    continue
                with torch.no_grad():
                    found = {part: run(parameters, images[part]) for part in ("validation", "test")}
                now = _cross_entropy(found["validation"], labels["validation"])
                better = now < best
                best = torch.where(better, now, best)
                news = {
                    "accuracy": ((found["test"] > 0) == (labels["test"] > 0)).float().mean(1),
                    "loss": _cross_entropy(found["test"], labels["test"]),
                    "rate": torch.full_like(best, rate),
                    "sharpness": torch.full_like(best, sharpness),
                }
                for name, value in news.items():
                    scores[name] = torch.where(better, value, scores[name])
                for name, value in parameters.items():
                    old = kept.setdefault(name, value.detach().clone())
                    old[better] = value.detach()[better]
    models = [_fresh(pooling, 1.0, seed) for seed in seeds]
    for index, model in enumerate(models):
        model.load_state_dict({name: value[index] for name, value in kept.items()})
    return BagTraining(models=models, **scores)


def inspect(model: BagClassifier, bags: Bags) -> dict[str, float]:
    """How a trained pooling looks at bags: what its weights and, of a memory, its states do.

    located: share of the bags with a 9 whose largest weight lies on it. entries: mean number of
    weights that sum to 0.9. beta: learned β; heat: median over bags of β λ_max(Cov of the keys),
    above 1 where the state at the mean of all keys is unstable. converged, hops: share of states
    that move less than 0.01 in one more hop, and mean hops. NaN where a pooling has no such thing.
    """
    weights = model.weights(bags.images)
    look = dict.fromkeys(("located", "entries", "beta", "heat", "converged", "hops"), float("nan"))
    if weights is not None:
        here = (bags.classes == TARGET).sum(1) == 1
        if bool(here.any()):
            top = bags.classes[here].gather(1, weights[here].argmax(1, keepdim=True))
            look["located"] = float((top == TARGET).double().mean())
        look["entries"] = float(effective_entries(weights).double().mean())
    if isinstance(model.pool, HopfieldLayer):
        layer = model.pool
        with torch.no_grad():
            features = model.encoder(bags.images)
            found = layer.retrieve(patterns=features, tolerance=STILL)
            keys = layer.to_key(layer.pattern_norm(features))
            spread = torch.linalg.matrix_norm(keys - keys.mean(1, keepdim=True), 2).square()
        beta = float(layer.beta.detach()[0])
        look["beta"] = beta
        look["heat"] = float((beta * spread / keys.shape[1]).median())
        look["converged"] = float(found.converged_share[0])
        look["hops"] = float(found.steps.double().mean())
    return look


def _fresh(pooling: str, sharpness: float, seed: int) -> BagClassifier:
    # torch draws initial weights from its global state and nowhere else: it is lent ours.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return BagClassifier(pooling, sharpness=sharpness)


def _batched(
    models: list[BagClassifier],
) -> tuple[Callable[[dict[str, Tensor], Tensor], Tensor], dict[str, Tensor]]:
    stacked, _ = stack_module_state(models)
    parameters = {name: value.detach().requires_grad_() for name, value in stacked.items()}

    def one(weights: dict[str, Tensor], images: Tensor) -> Any:
        return functional_call(models[0], weights, (images,))

    return torch.vmap(one), parameters


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="none").mean(1)
