"""Regimes of the map of SmolLM2-135M-Instruct by window, inverse temperature and prefix."""

from bookmaker.tables import Rows, stored
from compendium.c42d_while_a_model_learns.study import WITHIN, regime_rows
from compendium.common.prefixes import PREFIXES, soft_map
from compendium.common.rows import parameter_product
from spinformer.language.text import sample_texts

# The model card samples at the last of these.
BETAS = (0.3, 0.5, 0.7, 1.0, 2.0, 5.0)
WINDOWS = (1, 2, 4, 8)
# Longer windows stand behind the two prefixes that differ most: they cost in proportion, and are
# followed for longer, because a start leaves them later.
LONG_WINDOWS = (16, 32)
FRONTS = ("none", "first token")
# The window ends behind so many tokens of the opening of Moby-Dick.
PLACE = 40
# Tokens that are dropped and measured. Directions have a third of the measured ones to align in.
SHORT_RUNS = {"transient": (40,), "steps": (32,)}
LONG_RUNS = {"transient": (200,), "steps": (96,)}


# So short that chaos cannot amplify the rounding of single precision by much.
@stored(
    "atlas",
    [
        *parameter_product(window=WINDOWS, prefix=PREFIXES, **SHORT_RUNS),
        *parameter_product(window=LONG_WINDOWS, prefix=FRONTS, **LONG_RUNS),
    ],
    small={"window": 2, "prefix": "first token", "transient": 2, "steps": 6},
    seconds=10.0,
    within=WITHIN,
)
def atlas_table(window: int, *, prefix: str, transient: int, steps: int) -> Rows:
    """Regimes from one text."""
    soft = soft_map(prefix, window=window)
    numbers = soft.encode(sample_texts()["narrative"])[PLACE - window : PLACE]
    start = soft.embed(numbers[None])
    return regime_rows(soft, start, betas=BETAS, transient=transient, steps=steps)
