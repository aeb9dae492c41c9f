"""GGUF files written as transformers keeps a model, one matrix after the other.

transformers itself reads all matrices of such a file, keeps them twice on the way into a model, and
writes them from there. Here each is dequantized by the library gguf, renamed and reordered by the
tables of transformers, and written, so that little more than the largest one is in memory.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

# Bytes of matrices that are gathered in one file, and entries that are dequantized at once.
_SHARD = 1 << 28
_PIECE = 1 << 20
_WEIGHTS = "model.safetensors"


def convert_gguf(source: Path, folder: Path) -> None:
    """Write the model and the tokenizer of a GGUF file into a folder, in float32.

    Parameters
    ----------
    source : Path
        The file.
    folder : Path
        Folder that exists, from which `AutoModelForCausalLM.from_pretrained` can read afterwards.

    Raises
    ------
    Exception
        Of any kind, from the libraries, if the file is damaged or not of a model that they know.

    Notes
    -----
    The numbers are those that `AutoModelForCausalLM.from_pretrained(..., gguf_file=...)` gives, bit
    for bit.
    """
    import transformers

    options: dict[str, Any] = {"gguf_file": source.name, "local_files_only": True}
    transformers.AutoTokenizer.from_pretrained(source.parent, **options).save_pretrained(folder)
    config = transformers.AutoConfig.from_pretrained(source.parent, **options)
    # A model without numbers, of which the names of the matrices are wanted.
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    _write_shards(_tensors(source, model), folder)


def _tensors(source: Path, model: Any) -> Iterator[tuple[str, Tensor]]:
    """Names and values of the parameters of a model, one by one from a GGUF file."""
    import gguf
    from transformers import modeling_gguf_pytorch_utils as library

    reader = gguf.GGUFReader(source)
    layout = library.read_field(reader, "general.architecture")[0]
    make_processor = library.TENSOR_PROCESSORS.get(layout, library.TensorProcessor)
    processor = make_processor(config=model.config.to_dict())
    names = library.get_gguf_hf_weights_map(model, processor)
    # Some layouts merge several matrices of a file, and gather them here.
    merged: dict[str, Any] = {"tensors": {}}
    for tensor in reader.tensors:
        values = _dequantized(tensor)
        processed = processor.process(
            weights=values,
            name=tensor.name,
            tensor_key_mapping=names,
            parsed_parameters=merged,
        )
        if processed.name in names:
            values = np.require(processed.weights, dtype=np.float32, requirements=["C", "W"])
            yield names[processed.name], torch.from_numpy(values)
    yield from merged["tensors"].items()


def _dequantized(tensor: Any) -> np.ndarray:
    """Values of a matrix of the file, whose rows are dequantized a few at a time.

    gguf takes about as much memory again as it gives back.
    """
    import gguf

    values = np.empty(tensor.shape[::-1].tolist(), dtype=np.float32)
    rows = max(1, _PIECE * len(values) // values.size)
    for first in range(0, len(values), rows):
        here = slice(first, first + rows)
        values[here] = gguf.dequantize(tensor.data[here], tensor.tensor_type)
    return values


def _write_shards(tensors: Iterator[tuple[str, Tensor]], folder: Path) -> None:
    """Write parameters into one file, or into several with an index if they are large."""
    places: dict[str, str] = {}
    gathered: dict[str, Tensor] = {}
    total = 0
    files = 0

    def write() -> None:
        nonlocal files
        files += 1
        file = f"model-{files:05}.safetensors"
        _save(gathered, folder / file)
        places.update(dict.fromkeys(gathered, file))
        gathered.clear()

    for name, values in tensors:
        gathered[name] = values
        total += values.nbytes
        if sum(one.nbytes for one in gathered.values()) > _SHARD:
            write()
    if not places:
        _save(gathered, folder / _WEIGHTS)
        return
    if gathered:
        write()
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / f"{_WEIGHTS}.index.json").write_text(json.dumps(index), encoding="utf-8")


def _save(tensors: dict[str, Tensor], file: Path) -> None:
    from safetensors.torch import save_file

    save_file(tensors, file, metadata={"format": "pt"})
