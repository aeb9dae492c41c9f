"""Learning in the driven network: relaxed weights, three gradients, the exact one, trainings.

W = tanh θ for the signs of [poclopez2024dynamical, Eqs. (7), (8)], without position. A drawn mean
of segment l is x_l = 2 Binomial(n, (1 + tanh h_l)/2)/n − 1, n = N/L. The cost of a step is the
surprise of a target token over the *visible* segments, the first V. Gradients: "limit", through
the path of the means; "straight" (straight-through), through a drawn path as if each token were
its mean plus a constant; "score" (REINFORCE), of log P(drawn tokens) times later costs; that of
`exact_costs`, for a few bits.

Shapes: S networks side by side, B paths each, L segments, P features, T tokens in a window,
weights (S, 4, P, L), roles in the order o, v, q, k; time runs from old to new.
"""

from collections.abc import Sequence
from functools import cache, partial
from itertools import count
from types import SimpleNamespace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from scipy.special import binom
from torch import Tensor
from torch.nn.functional import cosine_similarity, logsigmoid, pad

from bookmaker.tables import Rows, Table, stored
from compendium.common.replicas import multiply_replicas, train_replicas
from compendium.common.rows import array_of, parameter_product, rows_of
from spinformer.core.random import numpy_generator, torch_generator
from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE
from spinformer.language.text import sample_texts

SEGMENTS = 11
FEATURES = 12
CONTEXT = 4
LENGTH = 8  # tokens of a cycle
BYTE = 8  # segments that a byte fills
# steps: tokens after the window. visible, given: V, as in `Text`. budget: updates with one path of
# every start. tuned: validation seeds.
TASKS = {
    "cycle": SimpleNamespace(steps=12, visible=SEGMENTS, given=0, budget=320, tuned=12),
    "bytes": SimpleNamespace(steps=16, visible=BYTE, given=2, budget=160, tuned=4),
}
SIZES = (99, 990, 9900, 99_000)
SHARES = (0.0, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)  # of the budget, where one looks


class Arm(NamedTuple):
    """What an arm of the comparison changes in `train`."""

    gradient: str = "limit"
    size: int = 0
    cut: bool = False
    shuffled: bool = False


ARMS = {
    "limit": Arm(),
    "limit, one step": Arm(cut=True),
    "limit, shuffled": Arm(shuffled=True),
    "straight, 99": Arm(gradient="straight", size=99),
    "straight, 9900": Arm(gradient="straight", size=9900),
    "score, 99": Arm(gradient="score", size=99),
    "score, 9900": Arm(gradient="score", size=9900),
}
_COPIES = 8  # paths of every start in an update of `gradients`
# What each estimator of `gradients` differentiates.
_KINDS = {
    "exact": "exact",
    "limit": "limit",
    "straight": "straight",
    "score": "score",
    "score, no baseline": "score",
}


class Text(NamedTuple):
    """What networks start from, are to write, and how strongly they attend.

    window: (S, B, T, L) in [−1, 1]. targets: (S, B, steps, V) signs. given: 0 where a network
    writes alone; n if it is told the visible part of every n-th token, and these steps alone cost.
    """

    window: Tensor
    targets: Tensor
    beta: float = 3.0
    gamma: float = 10.0
    given: int = 0

    def repeated(self, networks: int, paths: int) -> Self:
        """The same text for so many times as many networks and paths, copy by copy."""
        return self._replace(
            window=self.window.repeat(networks, paths, 1, 1),
            targets=self.targets.repeat(networks, paths, 1, 1),
        )


def rollout(
    weights: Tensor, text: Text, *, kind: str, size: int = 0, cut: bool = False, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Costs in bits and log-probabilities of draws, (S, B, steps); tokens (S, B, T + steps, L).

    size: N, 0 for the limit. cut: gradients pass through one step.
    """
    context = text.window.shape[2]
    steps, visible = text.targets.shape[2:]
    bits = size // weights.shape[-1]
    generator = torch_generator(seed)
    tokens = list(text.window.unbind(2))
    costs = []
    scores = []
    for step in range(steps):
        if cut:
            tokens = [token.detach() for token in tokens]
        field = _field(weights, torch.stack(tokens[-context:], 2), text)
        target = text.targets[:, :, step]
        told = text.given > 0 and (step + 1) % text.given == 0
        cost = surprise(field[..., :visible], target=target)
        token = torch.tanh(field)
        score = torch.zeros_like(cost)
        costs.append(cost if told or not text.given else score)
        if bits:
            chance = 0.5 * (1.0 + token.detach())
            ups = torch.binomial(torch.full_like(token, bits), chance, generator=generator)
            drawn = 2.0 * ups / bits - 1.0
            token = token + (drawn - token).detach() if kind != "score" else drawn
            # Without the number of ways, which has no gradient, and without what is told.
            logs = ups * logsigmoid(2.0 * field) + (bits - ups) * logsigmoid(-2.0 * field)
            score = logs[..., visible if told else 0 :].sum(-1)
        if told:
            token = torch.cat([target, token[..., visible:]], -1)
        tokens.append(token)
        scores.append(score)
    return torch.stack(costs, -1), torch.stack(scores, -1), torch.stack(tokens, 2)


def surrogate(costs: Tensor, scores: Tensor, *, kind: str, copies: int = 1) -> Tensor:
    """A number for each network (S,) whose gradient is the estimator `kind` of the mean cost.

    Of `copies` paths of each start, copy by copy, the baseline of the "score" is the mean of the
    later costs of the others.
    """
    mean = costs.mean((1, 2))
    costs = costs.detach()
    if kind != "score":
        return mean
    later = costs.flip(-1).cumsum(-1).flip(-1) - costs
    if copies > 1:
        grouped = later.unflatten(1, (copies, -1))
        # Less the mean of the others: copies/(copies − 1) times less the mean of all.
        grouped = (grouped - grouped.mean(1, keepdim=True)) * (copies / (copies - 1))
        later = grouped.flatten(1, 2)
    reward = (scores * later).sum(-1).mean(1) / costs.shape[-1]
    return mean + reward - reward.detach()


def exact_costs(weights: Tensor, text: Text, *, size: int) -> Tensor:
    """Mean cost of every step (B, steps) of one network of N bits: a sum over all texts."""
    window = text.window[0]
    targets = text.targets[0]
    segments = weights.shape[2]
    count, context = window.shape[:2]
    bits = size // segments
    ups = torch.cartesian_prod(*[torch.arange(bits + 1.0, dtype=weights.dtype)] * segments)
    kinds = len(ups)  # of tokens; windows are numbered with the oldest token varying slowest
    windows = 2.0 * ups[torch.cartesian_prod(*[torch.arange(kinds)] * context)] / bits - 1.0
    field = _field(weights[None], windows[None], text)[0]
    ways = torch.as_tensor(binom(bits, ups.numpy())).log().sum(-1)
    up = logsigmoid(2.0 * field)
    down = logsigmoid(-2.0 * field)
    moves = torch.exp(up @ ups.T + down @ (bits - ups).T + ways).reshape(kinds, -1, kinds)
    # Probabilities of the windows (B, kindsᵀ): each step sums over the oldest token.
    law = (window[:, None] == windows).flatten(2).all(2).to(weights.dtype)
    result = []
    for step in range(targets.shape[1]):
        costs = surprise(field[None, :, : targets.shape[2]], target=targets[:, step, None])
        result.append((law * costs).sum(-1))
        law = torch.einsum("noj,ojk->njk", law.reshape(count, kinds, -1), moves).flatten(1)
    return torch.stack(result, -1)


def surprise(field: Tensor, *, target: Tensor) -> Tensor:
    """Σ_l −log₂ P(bit l = ξ_l) over the last axis, P = e^{ξh}/(2 cosh h), in bits."""
    return -logsigmoid(2.0 * target * field).sum(-1) / np.log(2.0)


def _field(weights: Tensor, window: Tensor, text: Text) -> Tensor:
    """h = β W^o A of the next token, (S, B, L), from windows (S, B, T, L)."""
    segments = window.shape[3]
    values = multiply_replicas(window, weights[:, VALUE].mT) / segments
    queries = multiply_replicas(window, weights[:, QUERY].mT) / segments
    keys = multiply_replicas(window, weights[:, KEY].mT) / segments
    attention = torch.softmax(text.gamma * (queries[:, :, -1:] * keys).sum(-1), -1)
    mixed = (attention[..., None] * values).sum(2)
    return text.beta * (mixed @ weights[:, OUTPUT])


def draw_small(seed: int) -> tuple[Tensor, Text]:
    """θ (4, 3, 3) of a small network, and all starts of a cycle of the tokens of three signs."""
    generator = np.random.default_rng([seed, 30])
    theta = torch.as_tensor(generator.standard_normal((4, 3, 3)))
    signs = torch.as_tensor(_signs(generator.permutation(8), 3))
    tokens = signs[(np.arange(8)[:, None] + np.arange(10)) % 8][None]
    return theta, Text(tokens[:, :, :2], tokens[:, :, 2:], beta=1.5, gamma=5.0)


def _signs(numbers: np.ndarray, many: int) -> np.ndarray:
    """The last binary digits of integers (n,) as signs (n, many), the last one first."""
    return 2.0 * ((numbers[:, None] >> np.arange(many)) & 1) - 1.0


def gradients(
    theta: Tensor, text: Text, estimator: str, *, size: int, updates: int = 1, seed: int = 0
) -> Tensor:
    """Estimates of the gradient, (updates, 4, P, L), from eight copies; "exact", "limit": one."""
    kind = _KINDS[estimator]
    copies = _COPIES
    if kind in ("exact", "limit"):
        updates = 1
        copies = 1
        size = size if kind == "exact" else 0
    theta = theta.expand(updates, -1, -1, -1).clone().requires_grad_()
    weights = torch.tanh(theta)
    if kind == "exact":
        value = exact_costs(weights[0], text, size=size).mean()
    else:
        text = text.repeated(updates, copies)
        costs, scores, _ = rollout(weights, text, kind=kind, size=size, seed=seed)
        copies = copies if estimator == "score" else 1
        value = surrogate(costs, scores, kind=kind, copies=copies)
    return torch.autograd.grad(value.sum(), theta)[0]


def one_bit(strength: float) -> dict[str, tuple[float, float, float]]:
    """Slopes in a of the second cost of one bit, target up, after x₁ = 1, −1, and in the mean.

    h₁ = a and h₂ = a x₁; in the limit x₁ is its mean, whatever is drawn.
    """
    up = 1.0 / (1.0 + np.exp(-2.0 * strength))
    means = {}
    a = torch.full((64, 1, 1, 1), strength, dtype=torch.float64, requires_grad=True)
    ones = torch.ones_like(a)
    text = Text(ones, ones.expand(-1, -1, 2, -1), beta=1.0, gamma=0.0, given=2)
    for kind in ("limit", "straight", "score"):
        weights = torch.cat([a, ones, ones, ones], 1)
        size = int(kind != "limit")
        costs, scores, tokens = rollout(weights, text, kind=kind, size=size)
        # The mean over both steps, of which the second alone has a cost.
        value = 2.0 * surrogate(costs, scores, kind=kind).sum()
        slopes = torch.autograd.grad(value, a)[0].flatten()
        drawn = tokens[:, 0, 1, 0]
        first = float(slopes[(drawn - 1).abs().argmin()])
        other = float(slopes[(drawn + 1).abs().argmin()])
        means[kind] = (first, other, float(up * first + (1.0 - up) * other))
    return means


@stored(
    "quality", parameter_product(seed=range(10), size=(3, 6, 9, 15, *SIZES)), seconds=0.3, rtol=1e-3
)
def quality_table(seed: int, *, size: int) -> Rows:
    """Bias over the norm of the reference, cosine of an update with it, variance of one path.

    The reference is the exact gradient up to 15 bits, then the limit's. The variance of the mean
    of all updates is taken off the square of the bias.
    """
    small = draw_small(seed)
    rows = []
    measured = partial(gradients, *small, size=size, updates=128, seed=seed)
    target = measured("exact" if size <= 15 else "limit").flatten()
    norm = float(target.norm())
    for estimator in ("limit", "straight", "score", "score, no baseline"):
        found = measured(estimator).flatten(1)
        spread = float(found.var(0).sum()) if len(found) > 1 else 0.0
        off = float((found.mean(0) - target).square().sum()) - spread / len(found)
        rows += rows_of(
            estimator=estimator,
            bias=max(off, 0.0) ** 0.5 / norm,
            cosine=cosine_similarity(found, target[None]).mean(),
            variance=_COPIES * spread / norm**2,
        )
    return rows


def examples(
    task: str, *, seeds: Sequence[int], part: str = "train", draw: int = 0, shuffled: bool = False
) -> Text:
    """All eight starts of the cycle of every seed, or stretches of a part of the bytes.

    A byte fills eight segments, most significant bit first, and stands for `given` tokens, of which
    the network writes all but the last itself. shuffled: the targets' tokens in disorder.
    """
    rule = TASKS[task]
    found = []
    stride = max(rule.given, 1)
    first = CONTEXT // stride
    for seed in seeds:
        if task == "cycle":
            places = np.arange(LENGTH)[:, None] + np.arange(CONTEXT + rule.steps)
            rows = draw_cycle(seed)[places % LENGTH]
        else:
            read = stretches(part, seed=seed, draw=draw)
            rows = 2.0 * np.unpackbits(read[..., None], axis=-1) - 1.0
        if shuffled:  # over all paths and steps
            dealt = rows[:, first:].reshape(-1, rows.shape[-1])
            dealt = np.random.default_rng([seed, draw, 22]).permutation(dealt)
            rows[:, first:] = dealt.reshape(rows[:, first:].shape)
        found.append(np.repeat(rows, stride, axis=1))
    tokens = torch.as_tensor(np.array(found))
    window = pad(tokens[:, :, :CONTEXT], (0, SEGMENTS - rule.visible))
    if rule.given:
        window[:, :, np.arange(CONTEXT) % stride != stride - 1] = 0.0  # notes not yet written
    return Text(window, tokens[:, :, CONTEXT:], given=rule.given)


def draw_cycle(seed: int) -> np.ndarray:
    """Eight different tokens (8, 11) of random signs."""
    numbers = numpy_generator(seed).choice(2**SEGMENTS, size=LENGTH, replace=False)
    return _signs(numbers, SEGMENTS)


@cache
def text_bytes(part: str) -> np.ndarray:
    """Bytes of a part of the seven texts of `language.text`, each text split alike."""
    low, high = {"train": (0.0, 0.8), "validation": (0.8, 0.9), "test": (0.9, 1.0)}[part]
    texts = map(str.encode, sample_texts().values())
    pieces = [text[int(low * len(text)) : int(high * len(text))] for text in texts]
    return np.frombuffer(b"\n".join(pieces), dtype=np.uint8)


def stretches(part: str, *, seed: int = 0, draw: int = 0) -> np.ndarray:
    """Stretches of ten bytes (B, 10) of a part of the texts: 16 of an update, 64 of a test."""
    read = text_bytes(part)
    training = part == "train"
    generator = np.random.default_rng([seed if training else 0, draw, 21])
    begin = generator.integers(len(read) - 10, size=16 if training else 64)
    return read[begin[:, None] + np.arange(10)]


def tables() -> dict[str, float]:
    """Bits per bit of tables of bytes and of bits after a byte, mixed with ten single counts."""
    read = text_bytes("train").astype(int)
    test = stretches("test").astype(int)
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
    before = test[:, 1:-1].ravel()
    after = test[:, 2:].ravel()
    single = np.bincount(read, minlength=256)
    pairs = np.bincount(256 * read[:-1] + read[1:], minlength=256**2).reshape(256, 256)
    weight = pairs.sum(1, keepdims=True) + 10.0
    whole = (pairs + 10.0 * (single + 0.5) / (len(read) + 128.0)) / weight
    up = ((pairs @ bits + 10.0 * (single @ bits + 0.5) / (len(read) + 1.0)) / weight)[before]
    return {
        "bytes after a byte": float(-np.log2(whole[before, after]).mean() / BYTE),
        "bits after a byte": float(-np.log2(np.where(bits[after] == 1, up, 1.0 - up)).mean()),
    }


def train(
    task: str,
    *,
    seeds: Sequence[int],
    updates: int,
    rate: float,
    copies: int = 1,
    gradient: str = "limit",
    size: int = 0,
    cut: bool = False,
    shuffled: bool = False,
) -> dict[float, Tensor]:
    """θ (S, 4, P, L) of seeds side by side after each of SHARES of the budget.

    updates: with one path of every start; with `copies` as many fewer, for the same work. θ is
    normal at first, of standard deviation ½. size, cut: as in `rollout`.
    """
    shape = (4, FEATURES, SEGMENTS)
    drawn = [0.5 * np.random.default_rng([seed, 20]).standard_normal(shape) for seed in seeds]
    learned = {"theta": torch.as_tensor(np.array(drawn))}
    draws = count()

    def batch() -> Tensor:
        step = next(draws)
        text = examples(task, seeds=seeds, draw=step, shuffled=shuffled).repeated(1, copies)
        weights = torch.tanh(learned["theta"])
        costs, scores, _ = rollout(weights, text, kind=gradient, size=size, cut=cut, seed=step)
        return surrogate(costs, scores, kind=gradient, copies=copies)

    total = max(updates // copies, 1)
    looks = {share: round(share * total) for share in SHARES}
    kept = train_replicas(
        learned, losses=batch, rate=rate, steps=total, keep=looks.values(), betas=(0.9, 0.99)
    )
    return {share: kept[step]["theta"] for share, step in looks.items()}


def train_arm(
    task: str, arm: str, *, seeds: Sequence[int], updates: int, rate: float, copies: int
) -> dict[float, Tensor]:
    """`train` with what an arm changes in it."""
    chosen = ARMS[arm]
    return train(
        task,
        seeds=seeds,
        updates=updates,
        rate=rate,
        copies=copies,
        gradient=chosen.gradient,
        size=chosen.size,
        cut=chosen.cut,
        shuffled=chosen.shuffled,
    )


def losses(
    weights: Tensor, task: str, *, seeds: Sequence[int], size: int = 0, part: str = "test"
) -> np.ndarray:
    """Bits per bit of the target, (S,), at N = `size`, eight copies of each start; 0: the limit."""
    rule = TASKS[task]
    text = examples(task, seeds=seeds, part=part).repeated(1, 8 if size else 1)
    with torch.no_grad():  # so that the kind of gradient does not matter
        costs, _, _ = rollout(weights, text, kind="limit", size=size, seed=size)
    told = rule.steps // max(rule.given, 1)  # steps that have a cost
    return (costs.sum(-1).mean(1) / (told * rule.visible)).numpy()


@stored(
    "tuning",
    [
        unit
        for unit in parameter_product(task=TASKS, arm=ARMS, copies=(1, 2, 8), rate=(0.03, 0.1, 0.3))
        if (unit["copies"] > 1) == (ARMS[unit["arm"]].gradient == "score")
        and not ARMS[unit["arm"]].shuffled
    ],
    seconds=5.0,
    within={"loss": 0.02},
)
def tuning_table(task: str, *, arm: str, copies: int, rate: float) -> Rows:
    """Mean loss of the validation seeds at the arm's own N after the whole budget."""
    seeds = range(100, 100 + TASKS[task].tuned)
    updates = TASKS[task].budget
    trained = train_arm(task, arm, seeds=seeds, updates=updates, copies=copies, rate=rate)
    weights = torch.tanh(trained[1.0])
    size = ARMS[arm].size
    return rows_of(loss=losses(weights, task, seeds=seeds, size=size, part="validation").mean())


@stored(
    "learning",
    parameter_product(task=("cycle",), arm=ARMS, block=(0, 1))
    + parameter_product(task=("bytes",), arm=ARMS, block=(0,)),
    # Later two of the ten trainings amplify rounding, and with it what is drawn at finite N.
    small={"task": "cycle", "arm": "limit", "block": 0, "updates": 40},
    seconds=1.5,
    rtol=1e-3,
)
def learning_table(task: str, *, arm: str, block: int, updates: int | None = None) -> Rows:
    """Losses of ten seeds; copies and rate are the best in `tuning_table`, a control's the limit's.

    After the task's budget of updates, or so many.
    """
    table = tuning_table.read()
    name = "limit" if arm == "limit, shuffled" else arm
    own = np.flatnonzero((table["task"] == task) & (table["arm"] == name))
    best = own[np.argmin(table["loss"][own])]
    seeds = range(10 * block, 10 * block + 10)
    updates = TASKS[task].budget if updates is None else updates
    trained = train_arm(
        task,
        arm,
        seeds=seeds,
        updates=updates,
        rate=table["rate"][best],
        copies=int(table["copies"][best]),
    )
    measured = {"limit": (torch.tanh, 0)} | {f"n{n}": (torch.tanh, n) for n in SIZES}
    measured["signs"] = (torch.sign, 0)
    rows = []
    for share, theta in trained.items():
        columns: dict[str, Any] = {"seed": list(seeds), "share": share}
        for column_name, (weights_of, size) in measured.items():
            columns[column_name] = losses(weights_of(theta), task, seeds=seeds, size=size)
        rows += rows_of(columns)
    return rows


# Seeds drawn after the regions of C19 and C19b.
LEARNING_AGAIN = stored(
    "learning_again",
    parameter_product(task=("cycle",), arm=("limit", "score, 9900"), block=(2, 3))
    + parameter_product(task=("bytes",), arm=("limit", "score, 9900"), block=(1, 2, 3)),
    small={"task": "cycle", "arm": "limit", "block": 2, "updates": 20},
    seconds=1.0,
    rtol=1e-3,
)(learning_table.rows)


def column(
    task: str, arm: str, *, measure: str, share: float = 1.0, table: Table = learning_table
) -> np.ndarray:
    """One measure of every seed (S,) from a table of trainings, after a share of the budget."""
    return array_of(table.read(), measure, "seed", task=task, arm=arm, share=share)


def excess(
    task: str, size: int, *, share: float = 1.0, table: Table = learning_table
) -> np.ndarray:
    """Loss at N = `size` minus that in the limit, (seeds,), of trainings in the limit."""
    at_size = column(task, "limit", measure=f"n{size}", share=share, table=table)
    limit = column(task, "limit", measure="limit", share=share, table=table)
    return at_size - limit
