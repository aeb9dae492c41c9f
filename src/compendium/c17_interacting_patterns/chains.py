"""Chains of linked tokens in a line: a query names the first, the answer is the last one's label.

N = LENGTH tokens. Three chains of k links each stand side by side: three neighbours hold the first
tokens, the next three the second ones, and so on, each three in random order. A token is (tag of
the link before it, tag of the link after it, one-hot label or nothing, 1); tags are random unit
vectors, new in every draw, read with some noise, and the last tokens of the chains carry labels.
The other tokens are fillers with tags of their own, some with labels. A query is the tag before
the first token of one chain. Every link spans less than the window of REACH tokens to each side;
the chain's end lies outside of it for k > 1.
"""

from __future__ import annotations

import torch

from spinformer.core.random import TorchSeed, torch_generator
from spinformer.core.records import record

LENGTH = 30
TAG = 10
NOISE = 0.2  # norm of what is added to the tag after each token
LABELS = 4
REACH = 5
CHAINS = 3
FEATURES = 2 * TAG + LABELS + 1


@record
class Chains:
    """tokens (B, N, features), query (B, TAG), place (B,) of the first token, label (B,)."""

    tokens: torch.Tensor
    query: torch.Tensor
    place: torch.Tensor
    label: torch.Tensor


def draw_chains(batch: int, *, links: int, seed: TorchSeed) -> Chains:
    """`batch` independent lines of tokens with chains of `links` links."""
    source = torch_generator(seed)
    members = links + 1
    tags = torch.randn(batch, CHAINS, members + 1, TAG, generator=source)
    tags = torch.nn.functional.normalize(tags, dim=-1)
    loose = torch.nn.functional.normalize(
        torch.randn(batch, LENGTH, 2, TAG, generator=source), dim=-1
    )
    labels = torch.randint(LABELS, (batch, LENGTH), generator=source)
    ends = torch.randint(LABELS, (batch, CHAINS), generator=source)
    shown = torch.rand(batch, LENGTH, generator=source) < 0.2
    order = torch.rand(batch, members, CHAINS, generator=source).argsort(-1)
    offset = torch.randint(LENGTH - CHAINS * members + 1, (batch,), generator=source)
    wanted = torch.randint(CHAINS, (batch,), generator=source)

    tokens = torch.zeros(batch, LENGTH, FEATURES)
    tokens[..., -1] = 1.0
    tokens[..., : 2 * TAG] = loose.flatten(-2)
    blur = torch.randn(batch, LENGTH, TAG, generator=source) * (NOISE / TAG**0.5)
    marks = torch.nn.functional.one_hot(labels, LABELS).float() * shown.unsqueeze(-1)
    tokens[..., 2 * TAG : -1] = marks
    row = torch.arange(batch)
    place = torch.zeros(batch, dtype=torch.int64)
    for member in range(members):
        for slot in range(CHAINS):
            chain = order[:, member, slot]
            at = offset + CHAINS * member + slot
            tokens[row, at, :TAG] = tags[row, chain, member]
            tokens[row, at, TAG : 2 * TAG] = tags[row, chain, member + 1]
            end = torch.nn.functional.one_hot(ends[row, chain], LABELS).float()
            tokens[row, at, 2 * TAG : -1] = end if member == links else 0.0
            if member == 0:
                place = torch.where(chain == wanted, at, place)
    tokens[..., TAG : 2 * TAG] += blur
    return Chains(tokens=tokens, query=tags[row, wanted, 0], place=place, label=ends[row, wanted])
