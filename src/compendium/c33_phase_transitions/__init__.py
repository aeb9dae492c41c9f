"""The regimes of the two orbit diagrams of [poclopez2024dynamical] at full size."""
