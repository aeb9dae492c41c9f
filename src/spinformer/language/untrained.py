"""Models without training: controls of a trained one, and one small enough for an example."""

import dataclasses

import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from spinformer.core.checks import check_choice, check_instance
from spinformer.core.random import Seed, TorchSeed, numpy_generator, torch_generator
from spinformer.language.encoder import Architecture, LanguageModel

_SMALL = Architecture(layers=2, heads=2, width=8, inner=12, vocabulary=20, positions=10)


def random_weights(model: LanguageModel, kind: str, *, seed: Seed) -> LanguageModel:
    """Untrained control of an encoder: its initialization, or its weights shuffled.

    Parameters
    ----------
    model : LanguageModel
        The encoder whose architecture is kept.
    kind : {"initial", "shuffled"}
        "initial" is what training starts from: matrices N(0, 0.02²), biases 0 and LayerNorm gains
        1. "shuffled" permutes the trained numbers inside each tensor, which keeps their
        distribution and removes their structure.
    seed : int or numpy.random.Generator
        Source of the random numbers.

    Returns
    -------
    LanguageModel
        The control, with the same tokenizer.

    Raises
    ------
    TypeError
        If an argument is of the wrong type.
    ValueError
        If `kind` is another.

    References
    ----------
    [devlin2019bert], for the initialization.

    Examples
    --------
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
    """Small encoder of random weights, biases and gains of order one, which reads letters.

    Its vocabulary consists of five special tokens and the letters from a on, each as a word.

    Parameters
    ----------
    architecture : Architecture, default two layers of width 8
        Sizes of the encoder.
    seed : int or torch.Generator, default 0
        Source of the random weights.

    Returns
    -------
    LanguageModel
        The encoder, with its tokenizer.

    Raises
    ------
    TypeError
        If `architecture` is not an Architecture, or the seed is of the wrong type.

    Examples
    --------
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
