"""Untrained models: controls of a trained encoder, and models small enough for an example."""

import copy
from typing import Any

import torch
from torch import nn

from spinformer.core.checks import check_choice, check_instance, check_integer
from spinformer.core.random import Seed, TorchSeed, numpy_generator, torch_generator
from spinformer.language.checkpoints import Checkpoint
from spinformer.language.library import load_transformers

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def random_weights(model: nn.Module, kind: str, *, seed: Seed) -> Any:
    """Untrained control of an encoder: its initialization, or its weights shuffled.

    Parameters
    ----------
    model : torch.nn.Module
        The encoder whose architecture is kept. It is not changed.
    kind : {"initial", "shuffled"}
        "initial" is what training starts from: matrices N(0, 0.02²), biases 0 and LayerNorm gains
        1. "shuffled" permutes the trained numbers inside each tensor, which keeps their
        distribution and removes their structure.
    seed : int or numpy.random.Generator
        Source of the random numbers.

    Returns
    -------
    torch.nn.Module
        The control.

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
    >>> control = random_weights(example_model().model, "initial", seed=0)
    >>> control.embeddings.LayerNorm.weight[:3]
    tensor([1., 1., 1.], dtype=torch.float64)
    """
    check_instance("model", model, nn.Module)
    check_choice("kind", kind, ("initial", "shuffled"))
    generator = numpy_generator(seed)
    control = copy.deepcopy(model).requires_grad_(False)
    for name, parameter in sorted(control.named_parameters(), key=lambda named: named[0]):
        if kind == "shuffled":
            flat = parameter.reshape(-1).cpu().numpy().copy()
            generator.shuffle(flat)
            parameter.copy_(torch.from_numpy(flat).view_as(parameter))
        elif parameter.ndim == 2:
            drawn = generator.standard_normal(tuple(parameter.shape))
            parameter.copy_(0.02 * torch.from_numpy(drawn))
        else:
            parameter.fill_(float(name.endswith("LayerNorm.weight")))
    return control


def example_model(
    *,
    layers: int = 2,
    heads: int = 2,
    width: int = 8,
    inner: int = 12,
    vocabulary: int = 20,
    positions: int = 10,
    seed: TorchSeed = 0,
) -> Checkpoint:
    """Small BERT encoder of random weights, biases and gains of order one, which reads letters.

    Its vocabulary consists of five special tokens and the letters from a on, each as a word. It is
    in float64 and in evaluation mode.

    Parameters
    ----------
    layers : int, default 2
        Number of layers.
    heads : int, default 2
        Number of heads, which divides the width.
    width : int, default 8
        Width D.
    inner : int, default 12
        Number of units of the feed-forward network.
    vocabulary : int, default 20
        Number of words, at least 20.
    positions : int, default 10
        Length of the longest sequence, in tokens.
    seed : int or torch.Generator, default 0
        Source of the random weights.

    Returns
    -------
    Checkpoint
        The encoder, with its tokenizer.

    Raises
    ------
    TypeError
        If a size is not an integer, or the seed is of the wrong type.
    ValueError
        If a size is out of range, or `heads` does not divide `width`.

    Examples
    --------
    >>> example_model().tokenizer("a b a", add_special_tokens=False).input_ids
    [5, 6, 5]
    """
    generator = torch_generator(seed)
    sizes = {
        "num_hidden_layers": check_integer("layers", layers, low=1),
        "num_attention_heads": check_integer("heads", heads, low=1),
        "hidden_size": check_integer("width", width, low=1),
        "intermediate_size": check_integer("inner", inner, low=1),
        "vocab_size": check_integer("vocabulary", vocabulary, low=20),
        "max_position_embeddings": check_integer("positions", positions, low=1),
    }
    if width % heads:
        raise ValueError(f"width must be a multiple of the {heads} heads, got {width}")
    transformers = load_transformers()
    from tokenizers import Tokenizer, models, pre_tokenizers

    model = transformers.BertModel(transformers.BertConfig(**sizes), add_pooling_layer=False)
    model = model.double().eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        if "LayerNorm" in name:
            drawn = 0.3 * drawn + float(name.endswith("weight"))
        parameter.copy_(drawn)
    numbers = {word: number for number, word in enumerate((*_SPECIAL, *"abcdefghijklmno"))}
    words = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )
    return Checkpoint(model=model, tokenizer=tokenizer, name="example", quantization="none")


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
    transformers = load_transformers()
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
