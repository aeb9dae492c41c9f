"""Transformers as spin systems: associative memories, free energies, dynamical mean fields.

Sub-packages follow the three documents the book is about: `hopfield` (energies of
attention), `spins` (free energies and magnetisations) and `dmft` (dynamical mean-field
theory of self-attention). `pretrained` reads a real language model, `plotting` holds the
figure style, `chapters` runs the book.
"""

__version__ = "0.1.0"
