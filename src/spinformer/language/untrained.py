"""Untrained models: controls of a trained encoder, and models small enough for an example."""

import dataclasses
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from spinformer.core.checks import check_choice, check_instance, check_integer
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
    architecture : Architecture, optional
        Sizes of the encoder. If it is left out, two layers of width 8.
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


# Names of the configuration of each layout in transformers, and its sizes.
_LAYOUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {"num_key_value_heads": 2}),
    "qwen": ("Qwen3Config", {"num_key_value_heads": 2, "head_dim": 4}),
    "gemma": (
        "Gemma3TextConfig",
        {"num_key_value_heads": 2, "head_dim": 4, "query_pre_attn_scalar": 4},
    ),
    "gpt2": ("GPT2Config", {}),
}
LAYOUTS = tuple(_LAYOUTS)


def example_causal_model(
    layout: str = "llama",
    *,
    vocabulary: int = 32,
    width: int = 16,
    layers: int = 2,
    seed: int = 0,
) -> Any:
    """Small causal language model of random weights, in the layout of a family of models.

    Its matrices have entries of the standard deviation 1/√D, its embeddings of 1 as the model reads
    them, so that states have the same scale in every layout; norms have the gains that training
    starts from. It is in float64 and in evaluation mode.

    Parameters
    ----------
    layout : {"llama", "qwen", "gemma", "gpt2"}, default "llama"
        The family.
    vocabulary : int, default 32
        Number of words V.
    width : int, default 16
        Width D, a multiple of eight. There are four heads.
    layers : int, default 2
        Number of layers.
    seed : int, default 0
        Seed of the random weights.

    Returns
    -------
    transformers.PreTrainedModel
        The model.

    Raises
    ------
    TypeError
        If a size is not an integer.
    ValueError
        If the layout is another, or a size is out of range.

    Examples
    --------
    >>> model = example_causal_model("gpt2")
    >>> tuple(model.get_input_embeddings().weight.shape)
    (32, 16)
    """
    import transformers

    check_choice("layout", layout, LAYOUTS)
    vocabulary = check_integer("vocabulary", vocabulary, low=2)
    width = check_integer("width", width, low=8)
    layers = check_integer("layers", layers, low=1)
    if width % 8:
        raise ValueError(f"width must be a multiple of 8, got {width}")
    name, others = _LAYOUTS[layout]
    config = getattr(transformers, name)(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        max_position_embeddings=512,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
        tie_word_embeddings=True,
        **others,
    )
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float64)
    generator = torch_generator(seed)
    words = model.get_input_embeddings().weight
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.copy_(drawn / width**0.5)
        read = model.get_input_embeddings()(torch.arange(vocabulary))
        words.mul_(1 / read.std())
    return model.eval().requires_grad_(False)
