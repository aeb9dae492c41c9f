"""Regimes of small language models while they learn, and of a shipped one under other conventions.

One line of a table is a map: a model, what stands in front of its windows, a window T and an
inverse temperature β. It counts how many texts come to which regime. Training amplifies rounding,
so that another processor gives other models of the same kind; a unit that is computed again stops
after few updates, where it has not.
"""

import numpy as np
import torch
from torch import Tensor

from bookmaker.tables import Rows, stored
from compendium.c42d_while_a_model_learns.training import (
    LENGTH,
    SIZES,
    cut,
    held_out_loss,
    plays,
    train,
)
from compendium.common.rows import parameter_product, rows_of
from spinformer.core.regimes import Regime
from spinformer.core.solve import NotConverged
from spinformer.language.soft_map import SoftTokenMap, Thresholds
from spinformer.language.soft_map_fixed_points import StaysStable

# Inverse temperatures of every map; the model card of SmolLM2-135M-Instruct samples at the last.
BETAS = (0.1, 0.3, 0.5, 0.7, 1.0, 2.0, 5.0)
CARD_BETA = 5.0
WINDOWS = (1, 2, 4, 8, 16)
CHECKPOINTS = (0, 25, 50, 100, 200, 400, 800)
# The window that every checkpoint is studied with; the last one is studied with all.
_WINDOW = 4
# Between these β a fixed point is followed to the place where it loses its stability.
HIGHEST_BETA = 16.0
_LOWEST_BETA = 0.05

# How far a map that is computed again may be off: exponents, and texts beside a threshold.
WITHIN = dict.fromkeys(("exponent", "least", "most"), 0.02) | dict.fromkeys(
    ("fixed", "cycle", "curve", "chaotic", "undecided"), 1
)


def regime_rows(
    soft: SoftTokenMap,
    start: Tensor,
    *,
    betas: tuple[float, ...],
    transient: int,
    steps: int,
) -> Rows:
    """One row a β: mean and extremes of the exponents of n texts, and their regimes.

    start: windows (n, T, D).
    """
    limit = Thresholds(longest=min(Thresholds().longest, steps // 2))
    found = soft.find_attractors(
        start[:, None],
        beta=torch.tensor(betas).to(start),
        transient=transient,
        steps=steps,
        thresholds=limit,
    )
    rates = found.exponents.value[..., 0]
    rows = []
    for k, beta in enumerate(betas):
        regime = found.regime[:, k]
        cycle = (regime == Regime.PERIODIC) & (found.period[:, k] > 1)
        rows.append(
            {
                "beta": beta,
                "exponent": rates[:, k].mean(),
                "least": rates[:, k].min(),
                "most": rates[:, k].max(),
                "texts": len(regime),
                "fixed": int((found.period[:, k][regime == Regime.PERIODIC] == 1).sum()),
                "cycle": int(cycle.sum()),
                "curve": int((regime == Regime.QUASI_PERIODIC).sum()),
                "chaotic": int((regime == Regime.CHAOTIC).sum()),
                "undecided": int((regime == Regime.UNDECIDED).sum()),
            }
        )
    return rows


def stability_loss(soft: SoftTokenMap, *, highest: float = HIGHEST_BETA) -> float:
    """Find the β at which the fixed point loses its stability: ∞ if it is stable up to `highest`.

    Not a number where the fixed point was lost sight of.
    """
    try:
        return soft.critical_beta(within=(_LOWEST_BETA, highest)).beta
    except StaysStable:
        return np.inf
    except NotConverged:
        return np.nan


@stored(
    "learning",
    parameter_product(seed=range(5), size=SIZES),
    small={"size": "small", "seed": 0, "checkpoints": (0, 3), "transient": 4, "steps": 8},
    seconds=5.0,
    within={"loss": 1e-3, "critical": 0.05} | WITHIN,
)
def learning_table(
    seed: int,
    *,
    size: str,
    checkpoints: tuple[int, ...] = CHECKPOINTS,
    transient: int = 100,
    steps: int = 100,
) -> Rows:
    """Regimes at each checkpoint with a window of four, at the last of all with others, too.

    From four texts. The β of the loss of stability is that of a window of four.
    """
    rows = []
    pieces = cut(plays().held_out, torch.Generator().manual_seed(1), count=4, length=LENGTH)
    for update, model in train(size, seed=seed, checkpoints=checkpoints):
        loss = held_out_loss(model)
        # Single precision is enough to train, but not for eigenvalues at low β.
        model.double()
        critical = stability_loss(SoftTokenMap(model, window=_WINDOW))
        for window in WINDOWS if update == CHECKPOINTS[-1] else (_WINDOW,):
            soft = SoftTokenMap(model, window=window)
            start = soft.embed(pieces[:, -window:])
            found = regime_rows(soft, start, betas=BETAS, transient=transient, steps=steps)
            about = {"update": update, "loss": loss, "critical": critical, "window": window}
            rows += [about | row for row in found]
    return rows


@stored("settings_R11", parameter_product(size=SIZES, update=CHECKPOINTS[-2:]), seconds=0.1)
def settings_R11(size: str, *, update: int) -> Rows:
    """Mean leading exponents at β = 1 above what counts as zero, from least to most of four texts.

    Lines of one training share its data: checkpoints, and the windows that the last was run with.
    """
    learning = learning_table.read()
    here = (learning["size"] == size) & (learning["update"] == update) & (learning["beta"] == 1.0)
    rows = {name: column[here] for name, column in learning.items()}
    neutral = Thresholds().neutral
    return rows_of(
        window=rows["window"],
        data=rows["seed"] + 5 * list(SIZES).index(size),
        value=rows["exponent"] - neutral,
        low=rows["least"] - neutral,
        high=rows["most"] - neutral,
        runs=rows["texts"],
    )
