"""Models without training: controls of a trained one, and one small enough for an example."""

import dataclasses

import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from spinformer.core.checks import check_choice, check_instance
from spinformer.core.random import Seed, TorchSeed, numpy_generator, torch_generator
from spinformer.language.encoder import Architecture, LanguageModel

_SMALL = Architecture(layers=2, heads=2, width=8, inner=12, vocabulary=20, positions=10)


def random_weights(model: LanguageModel, kind: str, *, seed: Seed) -> LanguageModel:
    """A control with the same architecture and no learning in its connections.

    kind = "initial": what training starts from: matrices N(0, 0.02²), biases 0, LayerNorm
    gains 1 (the initialization of [devlin2019bert]). kind = "shuffled": the trained numbers,
    permuted inside each tensor: same spread, no structure.

    >>> control = random_weights(example_model(), "initial", seed=0)
    >>> control.weights["embeddings.LayerNorm.weight"][:3]
    tensor([1., 1., 1.], dtype=torch.float64)
    """
    check_instance("model", model, LanguageModel)
    check_choice("kind", kind, ("initial", "shuffled"))
    generator = numpy_generator(seed)
    weights = {}
    for name in sorted(model.weights):
        tensor = model.weights[name]
        if kind == "shuffled":
            flat = tensor.reshape(-1).cpu().numpy().copy()
            generator.shuffle(flat)
            weights[name] = torch.from_numpy(flat).reshape(tensor.shape).to(tensor)
        elif tensor.ndim == 2:
            drawn = torch.from_numpy(generator.standard_normal(tuple(tensor.shape)))
            weights[name] = (0.02 * drawn).to(tensor)
        else:
            weights[name] = torch.full_like(tensor, float(name.endswith("LayerNorm.weight")))
    return dataclasses.replace(model, weights=weights)


def example_model(architecture: Architecture = _SMALL, *, seed: TorchSeed = 0) -> LanguageModel:
    """An encoder of random weights, biases and gains, all of order one, that reads letters.

    Its vocabulary is five special tokens and the letters from a on, as words of their own.

    >>> model = example_model()
    >>> model.tokenizer.encode("a b a", add_special_tokens=False).ids
    [5, 6, 5]
    """
    check_instance("architecture", architecture, Architecture)
    generator = torch_generator(seed)
    weights = {}
    for name, shape in architecture.weight_shapes().items():
        drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
        if "LayerNorm" in name:
            drawn = 0.3 * drawn + float(name.endswith("weight"))
        weights[name] = drawn
    words = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmno")
    numbers = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return LanguageModel(weights=weights, architecture=architecture, tokenizer=tokenizer)
