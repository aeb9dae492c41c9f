"""Bags of handwritten digits, classifiers that differ in how they pool, and their training.

All classifiers have one number of parameters; many seeds train at once, everything tuned on
validation bags. The stored table has five poolings, two rules, numbers of bags and ten seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from bookmaker.tables import Rows, Table
from compendium.common.classifiers import parameter_count
from compendium.common.images import DIGIT_SHAPE, digit_labels, digits
from spinformer.core.random import Seed, numpy_generator, torch_generator
from spinformer.core.records import record
from spinformer.hopfield.attention import LOG_SUM_EXP, Lagrangian, entmax
from spinformer.hopfield.fixed_points import effective_entries
from spinformer.hopfield.layer import HopfieldLayer

RULES = ("needle", "majority")
PARTS = ("train", "validation", "test")
TARGET = 9
SIZE = 11


@record
class Bags:
    """images: (bags, SIZE, 64) in [−1, 1]; classes: (bags, SIZE); labels: (bags,), 0 or 1."""

    images: Tensor
    classes: Tensor
    labels: Tensor


@cache
def _digits() -> tuple[np.ndarray, np.ndarray]:
    """Images and classes, read once: reading takes as long as training on them."""
    return digits(), digit_labels()


def split_digits(seed: Seed) -> dict[str, np.ndarray]:
    """Indices of `images.digits` for training (60 %), validation and test (20 % each)."""
    order = numpy_generator(seed).permutation(len(_digits()[1]))
    cuts = (len(order) * 3 // 5, len(order) * 4 // 5)
    return dict(zip(PARTS, np.split(order, cuts), strict=True))


def draw_bags(count: int, *, rule: str, part: str, seed: int) -> Bags:
    """`count` bags of one part of the split that belongs to `seed`.

    Needle: even bags hold no 9, odd ones exactly one, at a random place. Majority: digits are
    drawn independently, the label is 1 where at least 6 of the 11 are 5 or larger.
    """
    indices = split_digits(seed)[part]
    rng = numpy_generator(np.random.default_rng([seed, PARTS.index(part), RULES.index(rule)]))
    images, kinds = _digits()
    classes = kinds[indices]
    if rule == "needle":
        rest, targets = indices[classes != TARGET], indices[classes == TARGET]
        chosen = rng.choice(rest, (count, SIZE))
        odd = np.arange(1, count, 2)
        chosen[odd, rng.integers(SIZE, size=len(odd))] = rng.choice(targets, len(odd))
    else:
        chosen = rng.choice(indices, (count, SIZE))
    classes = kinds[chosen]
    labels = (classes == TARGET).any(1) if rule == "needle" else (classes >= 5).sum(1) > SIZE // 2
    return Bags(
        images=torch.as_tensor(images[chosen], dtype=torch.float32),
        classes=torch.as_tensor(classes),
        labels=torch.as_tensor(labels, dtype=torch.float32),
    )


FEATURES = 32
PARAMETERS = 6273  # an encoder of 64 hidden units under the mean
STILL = 1e-2  # a state that moves less is at rest
_HEAD = 8
_INNER = 16  # hidden units of attention pooling

# The same softmax, but not by the fused kernel, which has no rule for `torch.vmap`.
_PLAIN = Lagrangian(
    name="log-sum-exp, plain", value=LOG_SUM_EXP.value, weights=LOG_SUM_EXP.gradient
)
_REST: dict[str, Any] = {"tolerance": STILL, "steps": 30}
_MEMORIES: dict[str, dict[str, Any]] = {
    "hopfield": {"lagrangian": _PLAIN},
    "hopfield, 3 steps": {"steps": 3, "lagrangian": _PLAIN},
    "hopfield, rest": {**_REST, "lagrangian": _PLAIN},
    "hopfield, sparse": {"lagrangian": entmax(2.0)},
    "static": {"static": True, "lagrangian": _PLAIN},
    "static, rest": {**_REST, "static": True, "lagrangian": _PLAIN},
}
POOLINGS = ("mean", "max", "attention", "gated", *_MEMORIES)


def has_memory(pooling: str) -> bool:
    """Whether a pooling is a `HopfieldLayer`, with an inverse temperature to start from."""
    return pooling in _MEMORIES


class BagClassifier(nn.Module):
    """Encoder, pooling and readout: images (bags, n, 64) to logits (bags,).

    pooling: one of POOLINGS. "attention" and "gated" weigh instances by a softmax over
    w·tanh(Vh) and w·(tanh(Vh) ⊙ sigmoid(Uh)) [ilse2018attention]; the Hopfield layers have one
    head of width 8, one learned query, a learned β that starts at `sharpness`/√width, and for
    "static" no projections. The encoder's hidden width makes the number of parameters that of all.
    """

    def __init__(self, pooling: str, *, sharpness: float = 1.0) -> None:
        super().__init__()
        self.pooling = pooling
        pixels = DIGIT_SHAPE[0] * DIGIT_SHAPE[1]
        self.pool: nn.Module | None = None
        if has_memory(pooling):
            options = _MEMORIES[pooling]
            size = FEATURES if options.get("static") else _HEAD
            self.pool = HopfieldLayer(
                FEATURES,
                head_width=size,
                pooling=1,
                beta=sharpness / size**0.5,
                **options,
            )
            self.pool.log_beta.requires_grad_()
        elif pooling in ("attention", "gated"):
            self.pool = AttentionPooling(_INNER, gated=pooling == "gated")
        self.readout = nn.Linear(FEATURES, 1)
        spent = parameter_count(self) + FEATURES
        hidden = round((PARAMETERS - spent) / (pixels + 1 + FEATURES))
        self.encoder = nn.Sequential(
            nn.Linear(pixels, hidden), nn.ReLU(), nn.Linear(hidden, FEATURES)
        )

    def forward(self, images: Tensor) -> Tensor:
        """Logits (bags,)."""
        features = self.encoder(images)
        if self.pooling == "mean":
            pooled = features.mean(-2)
        elif self.pooling == "max":
            pooled = features.amax(-2)
        elif isinstance(self.pool, HopfieldLayer):
            pooled = self.pool(patterns=features).squeeze(-2)
        else:
            assert self.pool is not None
            pooled = self.pool(features)
        logits: Tensor = self.readout(pooled).squeeze(-1)
        return logits

    @torch.no_grad()
    def weights(self, images: Tensor) -> Tensor | None:
        """(bags, n): what each instance weighs in the pool; None for the maximum."""
        features = self.encoder(images)
        if self.pooling == "mean":
            return torch.full(images.shape[:-1], 1.0 / images.shape[-2])
        if isinstance(self.pool, HopfieldLayer):
            found: Tensor = self.pool(patterns=features, need_weights=True)[1][:, 0]
            return found
        if isinstance(self.pool, AttentionPooling):
            return self.pool.weights(features)
        return None


class AttentionPooling(nn.Module):
    """Σ a_i h_i with a = softmax(w·tanh(Vh)), or gated: (..., n, 32) to (..., 32)."""

    def __init__(self, hidden: int, *, gated: bool = False) -> None:
        super().__init__()
        self.turn = nn.Linear(FEATURES, hidden)
        self.gate = nn.Linear(FEATURES, hidden) if gated else None
        self.score = nn.Linear(hidden, 1)

    def weights(self, features: Tensor) -> Tensor:
        """(..., n), sum 1."""
        inner = torch.tanh(self.turn(features))
        if self.gate is not None:
            inner = inner * torch.sigmoid(self.gate(features))
        return torch.softmax(self.score(inner).squeeze(-1), dim=-1)

    def forward(self, features: Tensor) -> Tensor:
        """The weighted mean of the features."""
        return (self.weights(features).unsqueeze(-1) * features).sum(-2)


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


SEEDS = tuple(range(10))
COMPARED = ("mean", "gated", "hopfield", "hopfield, rest", "static")


def curve_rows(*, rule: str, bags: int, pooling: str) -> Rows:
    """One row a seed: the choices made on validation bags, test results, a look inside."""
    found = train_bags(pooling, rule=rule, bags=bags, seeds=SEEDS)
    rows = []
    for index, (seed, model) in enumerate(zip(SEEDS, found.models, strict=True)):
        test = draw_bags(200, rule=rule, part="test", seed=seed)
        rows.append(
            {
                "seed": seed,
                "accuracy": float(found.accuracy[index]),
                "loss": float(found.loss[index]),
                "rate": float(found.rate[index]),
                "sharpness": float(found.sharpness[index]),
                **inspect(model, test),
            }
        )
    return rows


CURVE = Table(
    path=Path(__file__).with_name("curve.csv"),
    units=[
        *(
            {"rule": rule, "bags": bags, "pooling": pooling}
            for rule, bags in (("needle", 30), ("needle", 100), ("needle", 300), ("majority", 300))
            for pooling in COMPARED
        ),
        {"rule": "needle", "bags": 100, "pooling": "hopfield, 3 steps"},
    ],
    rows=curve_rows,
)
