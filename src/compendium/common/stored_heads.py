"""What repeated and symmetrized heads of the generator do, as chapters 14b and 23c stored it."""

from pathlib import Path

from bookmaker.tables import read_columns
from compendium.common.rows import Columns

_FOLDER = Path(__file__).parents[1]


def repeated_heads() -> Columns:
    """One row a text and head: at which kind of fixed point its repeated retrieval steps end."""
    return read_columns(_FOLDER / "c14b_heads_and_fixed_points" / "generator.csv")


def predicted_layers() -> Columns:
    """One row a layer, text and kind of weights: R² of what they predict of the layer's output."""
    return read_columns(_FOLDER / "c23c_real_layer" / "generator.csv")
