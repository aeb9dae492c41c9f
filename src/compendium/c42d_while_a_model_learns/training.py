"""Small causal language models of the Llama layout that learn to write plays, letter by letter.

The text is `plays.txt.xz`: the first 500,000 characters of plays of Shakespeare (in the public
domain), in the selection that is known as tiny Shakespeare. A word of the vocabulary is a
character. Texts of 64 characters are cut at random places, so that nothing stands in front of the
windows on which a model is trained either. Losses are in nats per character.
"""

import lzma
import warnings
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from importlib import resources
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from tqdm import TqdmWarning

from spinformer.core.records import record

# Width and number of layers; there are four heads. AdamW at a constant rate after a warm-up.
SIZES = {"small": (16, 1), "middle": (32, 2), "large": (64, 2)}
LENGTH = 64
_BATCH = 32
_RATE = 2e-3
_WARM_UP = 50
# The fraction of the text, at its end, that no model is trained on.
_HELD_OUT = 0.1


@record
class Corpus:
    """Numbers of the characters of the plays, and the characters that they stand for."""

    training: Tensor
    held_out: Tensor
    characters: str


@cache
def plays() -> Corpus:
    """The plays, with their last tenth held out."""
    file = resources.files(__package__).joinpath("plays.txt.xz")
    text = lzma.decompress(file.read_bytes()).decode("ascii")
    characters = "".join(sorted(set(text)))
    numbers = torch.tensor([characters.index(one) for one in text])
    held_out = int(_HELD_OUT * len(numbers))
    return Corpus(training=numbers[:-held_out], held_out=numbers[-held_out:], characters=characters)


def fresh_model(size: str, *, seed: int) -> Any:
    """An untrained model of the Llama layout, with the weights from which its training starts.

    They are Gaussian with the standard deviation 0.02, as the library transformers draws them.
    """
    with warnings.catch_warnings():
        # In a notebook tqdm asks for widgets, which no bar here needs.
        warnings.simplefilter("ignore", TqdmWarning)
        import transformers
    width, layers = SIZES[size]
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=len(plays().characters),
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=2 * LENGTH,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def cut(text: Tensor, generator: torch.Generator, *, count: int, length: int) -> Tensor:
    """Pieces (count, length) of a text from random places."""
    places = torch.randint(len(text) - length, (count,), generator=generator)
    return text[places[:, None] + torch.arange(length)]


def loss_of(model: Any, pieces: Tensor) -> Tensor:
    """Mean cross entropy of each next character of pieces (count, n), in nats."""
    logits = model(input_ids=pieces[:, :-1], use_cache=False).logits
    return cross_entropy(logits.flatten(0, 1), pieces[:, 1:].flatten())


def held_out_loss(model: Any) -> float:
    """Mean loss on 256 pieces of the text that was held out, always the same."""
    pieces = cut(plays().held_out, torch.Generator().manual_seed(0), count=256, length=LENGTH + 1)
    with torch.no_grad():
        return float(loss_of(model.eval(), pieces))


def train(size: str, *, seed: int, checkpoints: tuple[int, ...]) -> Iterator[tuple[int, Any]]:
    """Train a model, and give a copy at each checkpoint, a number of updates."""
    model = fresh_model(size, seed=seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE, weight_decay=0.1)
    generator = torch.Generator().manual_seed(seed)
    for update in range(max(checkpoints) + 1):
        if update in checkpoints:
            yield update, deepcopy(model).eval()
        if update == max(checkpoints):
            return
        for group in optimizer.param_groups:
            group["lr"] = _RATE * min(1.0, (update + 1) / _WARM_UP)
        pieces = cut(plays().training, generator, count=_BATCH, length=LENGTH + 1)
        optimizer.zero_grad()
        loss_of(model, pieces).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
