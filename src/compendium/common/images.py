"""Two small image sets that ship with libraries, and what memories do to them.

Nothing is fetched at run time. Faces: `skimage.data.lfw_subset`, whose first 100 images are
faces cut from Labelled Faces in the Wild (the other 100 are not faces and are left out).
Digits: `sklearn.datasets.load_digits`, the 8x8 handwritten digits of the UCI repository.
Each is imported where it is asked for: faces do not wait for scikit-learn.
"""

from __future__ import annotations

import numpy as np

FACE_SHAPE = (25, 25)
DIGIT_SHAPE = (8, 8)


def faces() -> np.ndarray:
    """The 100 faces as rows, shape (100, 625), float64, raster order of the 25x25 pixels.

    Grey values g in [0, 1] become 2g − 1, so entries lie in [−1, 1] with black at −1 and white
    at 1; nothing is centred or normalized per image (`images.reshape(-1, *FACE_SHAPE)` shows
    them). The mean over all faces and pixels is close to zero but not zero.
    """
    from skimage.data import lfw_subset

    return 2.0 * lfw_subset()[:100].reshape(100, -1).astype(np.float64) - 1.0


def digits() -> np.ndarray:
    """The 1797 handwritten digits as rows, shape (1797, 64), float64, raster order of 8x8 pixels.

    Grey values 0 … 16 become g/8 − 1, so entries lie in [−1, 1] with background −1 and ink 1.
    """
    from sklearn.datasets import load_digits

    return load_digits().data.astype(np.float64) / 8.0 - 1.0


def digit_labels() -> np.ndarray:
    """The class (0 … 9) of each row of `digits()`, shape (1797,), int64."""
    from sklearn.datasets import load_digits

    return load_digits().target.astype(np.int64)


def binarize(images: np.ndarray) -> np.ndarray:
    """Spins ±1 of the same shape (n, d) as `images`: +1 where a pixel is above its image's median.

    It looks like the picture; faces share an overlap of about 1/4.
    """
    return np.where(images > np.median(images, axis=1, keepdims=True), 1.0, -1.0)


def mask(images: np.ndarray, *, fraction: float) -> np.ndarray:
    """A copy of `images`, shape (n, d), whose last round(fraction·d) entries are 0.

    Rows come from the top: `fraction=0.5` hides the lower half. Zero favors no spin.
    """
    size = images.shape[1]
    return np.where(np.arange(size) < size - round(fraction * size), images, 0.0)
