"""Transformers as spin systems: associative memories, free energies, dynamical mean fields.

Three rooms follow the documents the book is about: `hopfield` (energies of attention), `spins`
(free energies and magnetizations) and `dmft` (dynamical mean-field theory of self-attention);
`language` reads a real language model. All stand on `core`, which holds what they share. On top,
`studies` holds the experiments of the chapters, `plotting` their figures, and `chapters` runs the
book.
"""

__version__ = "0.1.0"
