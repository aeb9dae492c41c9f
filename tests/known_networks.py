"""The published context and overlaps, networks of several sizes, and the step in plain loops."""

from dataclasses import replace

import numpy as np
import torch
from scipy.special import softmax

from spinformer.dmft.lyapunov import period_map
from spinformer.dmft.mean_field import torch_step
from spinformer.dmft.network import Network

# Context of the published network, oldest first, and the overlaps that follow at beta = 1.27.
CONTEXT = np.array(
    [
        (0.30752717, 0.29189849, 0.93811547),
        (-0.24761087, -0.23431948, 0.38146146),
        (-0.23496112, -0.24696923, 0.39411121),
        (-0.22889904, -0.25303131, 0.4001733),
    ]
)
OVERLAPS = np.array(
    [
        (-0.13687093, -0.45839630, 0.39080248),
        (0.05145646, -0.34563085, 0.51576808),
        (-0.39746257, -0.26889716, -0.03326015),
    ]
)
# Segments of different length, which equal fractions would hide.
UNEVEN = replace(
    Network.poclopez2024(), gamma=8.0, epsilon=0.1, fractions=np.array([0.5, 0.3, 0.2])
)
# One kind of bit in a window of one token: x → tanh βx.
COIN = Network(
    semantic=np.ones((4, 1, 1)), position=np.ones((4, 1, 0)), context=1, gamma=1.0, epsilon=0.0
)


def merged(network):
    """The network with equal segments as one, whose fractions add."""
    unique, inverse = np.unique(
        network.semantic.reshape(-1, network.segments), axis=1, return_inverse=True
    )
    fractions = np.bincount(inverse.ravel(), weights=network.fractions)
    semantic = unique.reshape(4, network.features, -1)
    return replace(network, semantic=semantic, fractions=fractions)


# With the position of the newest token.
NETWORKS = [
    (Network.poclopez2024(), 3),
    (Network.segmented(1, features=2, segments=4, bits=3, context=5, gamma=9.0), 6),
    (Network.segmented(2, features=4, segments=2, bits=0, context=3, gamma=4.0, epsilon=0.0), 2),
    (
        merged(
            Network.segmented(4, segments=12, features=1, bits=1, context=2, gamma=3.0, epsilon=0.2)
        ),
        0,
    ),
    (UNEVEN, 1),
]


def plain_step(network, beta, window, position):
    """Mean of the next token, written out with loops: shares no code with the package."""
    m = np.zeros((len(window), 4, network.features))
    for age, token in enumerate(window[::-1]):
        place = (position - age) % network.positions
        for role in range(4):
            for s in range(network.segments):
                share = (1 - network.epsilon) * network.fractions[s]
                m[age, role] += share * network.semantic[role, :, s] * token[s]
            for bit in range(network.bits):
                sign = 1.0 if place >> (network.bits - 1 - bit) & 1 else -1.0
                share = network.epsilon / network.bits
                m[age, role] += share * network.position[role, :, bit] * sign
    weight = softmax([network.gamma * m[0, 2] @ m[age, 3] for age in range(len(window))])
    attention = weight @ m[:, 1]
    return np.tanh(beta * attention @ network.semantic[0])


def tangent_map(network, context, beta, **parameters):
    """∂(next window)/∂(window), (T·P, T·P), which tests hold to autograd and to differences."""
    return period_map(network, context, beta=beta, steps=1, **parameters)[1]


def step_in_torch(network, attention, position, **changed):
    """The next attention and the overlaps by `torch_step`, weights and parameters the network's."""
    given = {"semantic": torch.tensor(network.semantic), "gamma": network.gamma}
    given |= {"epsilon": network.epsilon} | changed
    return torch_step(
        given.pop("semantic"),
        fractions=torch.tensor(network.fractions),
        position_overlaps=torch.tensor(network.position_overlaps()),
        attention=attention,
        position=position % network.positions,
        **given,
    )
