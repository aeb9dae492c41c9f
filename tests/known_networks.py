"""The document's context and overlaps, and networks of several sizes, for tests of texts."""

import numpy as np

from spinformer.dmft.network import Network

# Context of the document's network, oldest first, and the overlaps that follow at beta = 1.27.
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
# One kind of bit in a window of one token: x → tanh βx.
COIN = Network(
    semantic=np.ones((4, 1, 1)), position=np.ones((4, 1, 0)), context=1, gamma=1.0, epsilon=0.0
)
# With the position of the newest token.
NETWORKS = [
    (Network.document(), 3),
    (Network.segmented(1, features=2, segments=4, bits=3, context=5, gamma=9.0), 6),
    (Network.segmented(2, features=4, segments=2, bits=0, context=3, gamma=4.0, epsilon=0.0), 2),
    (
        Network.segmented(
            4, segments=12, features=1, bits=1, context=2, gamma=3.0, epsilon=0.2
        ).merged(),
        0,
    ),
]
