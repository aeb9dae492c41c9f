"""The library transformers, imported where it is used, and the error of a model that is not there.

transformers is an extra (`pip install 'spinformer[language]'`) and takes a second to import.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import TqdmWarning


class ModelUnavailable(RuntimeError):
    """Failure to find or read a pretrained model.

    The message says what is missing and how to get it.
    """

    def _render_traceback_(self) -> list[str]:
        # IPython shows these lines in place of a traceback: a reader without the model sees
        # one sentence, and "run all", papermill and nbval stop at the cell that loads.
        return [f"{type(self).__name__}: {self}"]


def load_transformers() -> Any:
    """Import the library transformers.

    Returns
    -------
    module
        The library.

    Raises
    ------
    ModelUnavailable
        If it is not installed. The message says how to get it.

    Examples
    --------
    >>> load_transformers().__name__
    'transformers'
    """
    try:
        with warnings.catch_warnings():
            # In a notebook tqdm asks for widgets, which no bar here needs.
            warnings.simplefilter("ignore", TqdmWarning)
            import transformers
            import transformers.modeling_utils
    except ImportError:
        raise ModelUnavailable(
            "language models need the library transformers; get it with "
            "`pip install 'spinformer[language]'`"
        ) from None
    return transformers


@contextmanager
def without_messages(transformers: Any) -> Iterator[None]:
    """Let the library draw no progress bars and give no advice while a model is read.

    Parameters
    ----------
    transformers : module
        The library.

    Yields
    ------
    None
        Nothing; the settings are as before behind the block.
    """
    logging = transformers.utils.logging
    bars = logging.is_progress_bar_enabled()
    level = logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
