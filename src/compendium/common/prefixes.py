"""What stands in front of the windows of the shipped language model, in every chapter the same."""

from compendium.common.models import checkpoint
from spinformer.language.soft_map import SoftTokenMap

# Nothing, the first token of a chat, the tokens of a chat template before a user's text, or a
# prompt.
PREFIXES = {
    "none": None,
    "first token": "<|im_start|>",
    "template": "<|im_start|>user\n",
    "prompt": "Once upon a time,",
}


def soft_map(prefix: str = "none", *, window: int) -> SoftTokenMap:
    """The map of the checkpoint with one of the prefixes."""
    found = checkpoint()
    return SoftTokenMap(
        found.model, window=window, prefix=PREFIXES[prefix], tokenizer=found.tokenizer
    )
