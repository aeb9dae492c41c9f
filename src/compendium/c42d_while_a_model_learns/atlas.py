"""Regimes of the map of SmolLM2-135M-Instruct by window, inverse temperature and prefix."""

from bookmaker.tables import Rows, stored
from compendium.c42d_while_a_model_learns.study import WITHIN, regime_rows
from compendium.common.prefixes import PREFIXES, soft_map
from compendium.common.rows import parameter_product
from spinformer.language.text import sample_texts

# The model card samples at the last of these.
BETAS = (0.3, 0.5, 0.7, 1.0, 2.0, 5.0)
WINDOWS = (1, 2, 4, 8)
# Longer windows cost in proportion, and stand behind the two prefixes that differ most.
LONG_WINDOWS = (16, 32)
FRONTS = ("none", "first token")
# The window ends behind so many tokens of the opening of Moby-Dick.
PLACE = 40
# Tokens that are measured.
STEPS = 32


# So short that chaos cannot amplify the rounding of single precision by much.
@stored(
    "atlas",
    [
        *parameter_product(window=WINDOWS, prefix=PREFIXES),
        *parameter_product(window=LONG_WINDOWS, prefix=FRONTS),
    ],
    small={"window": 2, "prefix": "first token", "transient": 2, "steps": 6},
    seconds=10.0,
    within=WITHIN,
)
def atlas_table(window: int, *, prefix: str, transient: int = 40, steps: int = STEPS) -> Rows:
    """Regimes from one text, 40 tokens dropped and 32 measured."""
    soft = soft_map(prefix, window=window)
    numbers = soft.encode(sample_texts()["narrative"])[PLACE - window : PLACE]
    start = soft.embed(numbers[None])
    return regime_rows(soft, start, betas=BETAS, transient=transient, steps=steps)
