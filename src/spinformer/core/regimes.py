"""Kinds of motion of an orbit, whatever the map."""

from enum import IntEnum


class Regime(IntEnum):
    """Dynamical regime of an orbit: periodic, quasi-periodic, chaotic, undecided, transient chaos.

    The property `label` is the name in words that tables print.
    """

    PERIODIC = 0
    QUASI_PERIODIC = 1
    CHAOTIC = 2
    UNDECIDED = 3
    TRANSIENT_CHAOS = 4

    @property
    def label(self) -> str:
        """Name of the regime in words.

        Examples
        --------
        >>> Regime.QUASI_PERIODIC.label
        'quasi-periodic'
        """
        return "transient chaos" if self.value == 4 else self.name.lower().replace("_", "-")
