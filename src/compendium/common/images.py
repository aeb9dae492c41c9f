"""Two small image sets that ship with libraries, each imported where it is asked for.

The first 100 images of `skimage.data.lfw_subset`, faces cut from Labelled Faces in the Wild, and
`sklearn.datasets.load_digits`, 8x8 handwritten digits of the UCI repository.
"""

import numpy as np

FACE_SHAPE = (25, 25)
DIGIT_SHAPE = (8, 8)


def faces() -> np.ndarray:
    """The 100 faces as rows (100, 625) from −1, black, to 1, white, as they are.

    Which grey is called zero is a choice of ours, and dot products depend on it.
    """
    from skimage.data import lfw_subset

    return 2.0 * lfw_subset()[:100].reshape(100, -1).astype(np.float64) - 1.0


def digits() -> np.ndarray:
    """The 1797 handwritten digits as rows (1797, 64), background −1 and ink 1."""
    from sklearn.datasets import load_digits

    return load_digits().data.astype(np.float64) / 8.0 - 1.0


def digit_labels() -> np.ndarray:
    """The class (0 … 9) of each row of `digits()`, shape (1797,), int64."""
    from sklearn.datasets import load_digits

    return load_digits().target.astype(np.int64)


def binarize(images: np.ndarray) -> np.ndarray:
    """Spins ±1 of the shape (n, d) of `images`: +1 where a pixel is above its image's median."""
    return np.where(images > np.median(images, axis=1, keepdims=True), 1.0, -1.0)


def mask(images: np.ndarray, *, fraction: float) -> np.ndarray:
    """A copy of `images`, shape (n, d), whose last round(fraction·d) entries are 0.

    Rows come from the top: `fraction=0.5` hides the lower half. Zero favors no spin.
    """
    size = images.shape[1]
    return np.where(np.arange(size) < size - round(fraction * size), images, 0.0)
