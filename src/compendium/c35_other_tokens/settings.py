"""Tables of settings of C17 and C17b: groups of five networks each."""

from bookmaker.tables import Rows, stored
from compendium.c35_other_tokens.study import (
    FAMILIES,
    SITES,
    WORD_LISTS,
    deviations_table,
    fit_exponents,
)
from compendium.common.rows import mean_rows, parameter_product

# Networks of a group; by how much the power of N of sites may be off −1/2; a power from which on
# the deviation of words would be said to fall.
_GROUP = 5
_OFF = 0.05
_FALLING = 0.25


def _units(kinds: tuple[tuple[int, int], ...]) -> Rows:
    return [
        {
            "data": f"{letters}-{words}-{unit['family']}-{unit['first']}",
            "letters": letters,
            "words": words,
        }
        | unit
        for letters, words in kinds
        for unit in parameter_product(family=FAMILIES, first=(0, _GROUP))
    ]


@stored("settings_C17", _units(SITES[1:]), seconds=0.1)
def settings_c17(data: str, letters: int, words: int, family: str, first: int) -> Rows:
    """0.05 minus what the power of N in the deviation of sites is off −1/2."""
    seeds = FAMILIES[family][first : first + _GROUP]
    powers = fit_exponents(deviations_table.read(), letters=letters, words=words, seeds=seeds)
    return mean_rows(_OFF - abs(powers + 0.5))


@stored("settings_C17b", _units(WORD_LISTS), seconds=0.1)
def settings_c17b(data: str, letters: int, words: int, family: str, first: int) -> Rows:
    """By how much the deviation of words falls faster than N^(−1/4)."""
    seeds = FAMILIES[family][first : first + _GROUP]
    powers = fit_exponents(deviations_table.read(), letters=letters, words=words, seeds=seeds)
    return mean_rows(-_FALLING - powers)
