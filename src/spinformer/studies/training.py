"""Training stacks of spin systems on images, and watching what happens inside.

Tokens are patches of scikit-learn's digits. A stack embeds them, lets one layer drive the next,
averages over tokens and classifies. Its layers are spin systems (`spins.module`), whose
magnetisations are the fields of the next system with nothing added in between (document 000,
section 10), or torch's `TransformerEncoderLayer` at the same number of parameters. Probes measure
the collective behaviour of every layer on the same images at any moment of the training.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from tqdm import tqdm

from spinformer.core.checks import check_choice, check_integer, check_real, check_tensor
from spinformer.spins.modules.spin_transformer import SpinTransformerModule

KINDS = ("spins", "transformer")


@dataclass(frozen=True)
class TokenData:
    """Images as tokens (images, N, pixels of a patch), centred and scaled; labels are 0 to 9."""

    train_tokens: Tensor
    train_labels: Tensor
    test_tokens: Tensor
    test_labels: Tensor


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class TrainingRun:
    """What a training left: per epoch the mean loss and the accuracies; probes by epoch."""

    loss: list[float]
    train_accuracy: float
    test_accuracy: list[float]
    probes: dict[int, list[LayerProbe]] = field(default_factory=dict)


def digits_as_tokens(
    *, patch: int = 2, test_share: float = 1 / 3, seed: int = 0, dtype: torch.dtype = torch.float32
) -> TokenData:
    """The 1797 handwritten digits of 8 x 8 pixels, cut into square patches of `patch` pixels.

    `patch` is 1, 2 or 4 (64, 16 or 4 tokens). Images are shuffled by `seed` before `test_share`
    of them is set aside; tokens are centred and scaled by mean and deviation of the training set.
    """
    check_choice("patch", patch, (1, 2, 4))
    check_real("test_share", test_share, low=0.01, high=0.99)
    check_integer("seed", seed, low=0)
    images, labels = load_digits(return_X_y=True)
    side = 8 // patch
    pixels = torch.tensor(images, dtype=dtype).reshape(-1, side, patch, side, patch)
    tokens = pixels.permute(0, 1, 3, 2, 4).reshape(len(labels), side * side, patch * patch)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    tokens, targets = tokens[order], torch.tensor(labels)[order]
    held = round(test_share * len(labels))
    train = tokens[held:]
    tokens = (tokens - train.mean()) / train.std()
    return TokenData(tokens[held:], targets[held:], tokens[:held], targets[:held])


class TokenClassifier(nn.Module):
    """Embedding with learned positions, `depth` layers of one kind, mean over tokens, readout.

    `kind` "spins": `SpinTransformerModule` with learned channel maps; `options` go to it
    (`steps`, `order`, `response`, ...). "transformer": torch's `TransformerEncoderLayer` with
    `feedforward` hidden units, no dropout. Input (images, N, pixels), output logits (images, 10).
    """

    def __init__(
        self,
        kind: str,
        *,
        tokens: int = 16,
        pixels: int = 4,
        dim: int = 32,
        heads: int = 4,
        depth: int = 2,
        feedforward: int = 64,
        classes: int = 10,
        **options: object,
    ) -> None:
        super().__init__()
        self.kind = check_choice("kind", kind, KINDS)
        check_integer("depth", depth, low=1)
        check_integer("heads", heads, low=1)
        self.embedding = nn.Linear(pixels, dim)
        self.position = nn.Parameter(torch.randn(tokens, dim) / 2)
        if kind == "spins":
            layers = [
                SpinTransformerModule(dim, heads, channel_maps=True, **options)
                for _ in range(depth)
            ]
        else:
            if options:
                raise TypeError(f"options must be empty for a transformer, got {sorted(options)}")
            check_integer("feedforward", feedforward, low=1)
            layers = [
                nn.TransformerEncoderLayer(dim, heads, feedforward, dropout=0.0, batch_first=True)
                for _ in range(depth)
            ]
        self.layers = nn.ModuleList(layers)
        self.readout = nn.Linear(dim, classes)

    def embed(self, tokens: Tensor) -> Tensor:
        """The input of the first layer, (images, N, dim)."""
        return self.embedding(tokens) + self.position

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (images, classes)."""
        state = self.embed(tokens)
        for layer in self.layers:
            state = layer(state)
        return self.readout(state.mean(-2))


def parameter_count(model: nn.Module) -> int:
    """Number of trainable numbers."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def matched_transformer(
    spins: TokenClassifier, *, dim: int, heads: int
) -> tuple[TokenClassifier, int]:
    """A transformer of width `dim` with as many parameters as `spins`, and its `feedforward`.

    The hidden width is the integer that comes closest. ValueError if already one hidden unit is
    too much, so that `dim` must be smaller.
    """
    tokens, pixels = spins.position.shape[0], spins.embedding.in_features
    shape = {
        "tokens": tokens,
        "pixels": pixels,
        "dim": dim,
        "heads": heads,
        "depth": len(spins.layers),
        "classes": spins.readout.out_features,
    }
    one = parameter_count(TokenClassifier("transformer", feedforward=1, **shape))
    per_unit = len(spins.layers) * (2 * dim + 1)
    hidden = 1 + round((parameter_count(spins) - one) / per_unit)
    if hidden < 1:
        raise ValueError(f"dim must be small enough to match the parameters, got {dim}")
    return TokenClassifier("transformer", feedforward=hidden, **shape), hidden


@torch.no_grad()
def accuracy(model: TokenClassifier, tokens: Tensor, *, labels: Tensor) -> float:
    """Share of images whose largest logit is their label."""
    return float((model(tokens).argmax(-1) == labels).double().mean())


@torch.no_grad()
def probe_layers(model: TokenClassifier, tokens: Tensor, *, labels: Tensor) -> list[LayerProbe]:
    """The collective behaviour of every layer for these images, first layer first."""
    check_tensor("tokens", tokens, ndim=3)
    state, probes = model.embed(tokens), []
    for layer in model.layers:
        before = state
        polarization = correlation = connected = response = float("nan")
        if model.kind == "spins":
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
    seed: int = 0,
    probe_at: tuple[int, ...] = (),
    progress: bool = False,
) -> TrainingRun:
    """Adam on the cross-entropy, the rate falling to zero along a cosine.

    `probe_at` lists epochs after which the layers are probed on the test images (0: before
    training). RuntimeError if the loss is no longer finite.
    """
    check_integer("epochs", epochs, low=1)
    check_integer("batch", batch, low=1)
    check_real("rate", rate, low=0.0, open_low=True)
    generator = torch.Generator().manual_seed(check_integer("seed", seed, low=0))
    count = len(data.train_labels)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * -(-count // batch))
    held = data.test_tokens, data.test_labels
    probes = {0: probe_layers(model, *held)} if 0 in probe_at else {}
    losses, tested = [], []
    for epoch in tqdm(range(1, epochs + 1), disable=not progress, desc="epochs"):
        total = 0.0
        for chosen in torch.randperm(count, generator=generator).split(batch):
            loss = nn.functional.cross_entropy(
                model(data.train_tokens[chosen]), data.train_labels[chosen]
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += float(loss.detach()) * len(chosen)
        if not torch.isfinite(torch.tensor(total)):
            raise RuntimeError(f"the loss is no longer finite in epoch {epoch}: lower rate")
        losses.append(total / count)
        tested.append(accuracy(model, *held))
        if epoch in probe_at:
            probes[epoch] = probe_layers(model, *held)
    trained = accuracy(model, data.train_tokens, labels=data.train_labels)
    return TrainingRun(losses, trained, tested, probes)


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
