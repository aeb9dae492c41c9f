"""Table of settings of A19: which faces come back, by what is hidden and how they are prepared.

value: the share of the hundred faces that are recalled at β⟨‖x‖²⟩/d = 1, less 0.995, so that above
zero all of them are. These hundred faces are the statement's own and no sample: the interval is
the count itself.
"""

from __future__ import annotations

from pathlib import Path

import torch

from bookmaker.tables import Rows, stored
from compendium.c12_continuous_memory.study import (
    HALVES,
    faces_recalled,
    prepare_faces,
    visible_half,
)
from compendium.common import images
from compendium.common.rows import grid


@stored(
    Path(__file__).with_name("settings_A19.csv"),
    units=grid(
        half=HALVES,
        hidden=(0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
        centring=("none", "mean face"),
        norm=("own", "equal"),
    ),
    seconds=0.5,
    within={"value": 0.011, "low": 0.011, "high": 0.011},
)
def SETTINGS(half: str, hidden: float, centring: str, norm: str) -> Rows:
    """One place and share of what is hidden, one way to prepare the memory."""
    faces = torch.as_tensor(images.faces())
    memory, queries = prepare_faces(
        faces,
        seen=visible_half(half, hidden=hidden),
        centring=centring,
        equal_norm=norm == "equal",
        scaled_query=True,
    )
    count = faces_recalled(memory, queries=queries, coldness=1.0)
    lead = count / len(faces) - 0.995
    return [{"value": lead, "low": lead, "high": lead, "runs": len(faces)}]
