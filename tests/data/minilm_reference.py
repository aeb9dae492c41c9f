"""Write minilm_reference.json: what Hugging Face `transformers` computes for one sentence.

Run once, where `transformers` is installed (the project does not need it otherwise):
    python tests/data/minilm_reference.py FOLDER_OF_THE_MODEL
"""

import json
import sys
from pathlib import Path

import torch
import transformers

SENTENCE = "A crowd of spins and a crowd of words obey different laws; ask both the same questions!"


def main(folder: str) -> None:
    """Store hidden states and attention of a float64 forward at a few fixed places."""
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(SENTENCE)["input_ids"]
    model = transformers.BertModel.from_pretrained(folder, attn_implementation="eager")
    model = model.double().eval()
    with torch.no_grad():
        result = model(torch.tensor([tokens]), output_hidden_states=True, output_attentions=True)
    reference = {
        "made_with": f"transformers {transformers.__version__}",
        "sentence": SENTENCE,
        "tokens": tokens,
        "hidden_norm": [float(state.norm()) for state in result.hidden_states],
        "hidden_head": [state[0, ::5, ::97].tolist() for state in result.hidden_states],
        "attention_head": [maps[0, :, ::6, ::7].tolist() for maps in result.attentions],
    }
    target = Path(__file__).with_suffix(".json")
    target.write_text(json.dumps(reference, indent=None) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
