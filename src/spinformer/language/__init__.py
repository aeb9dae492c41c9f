"""A real, small language model, read from disk and run in a few lines of torch.

Everything that lives on tokens is a torch tensor, in the precision of the model's weights (float64
unless asked otherwise); there is no gradient unless a state asks for one. Letters: B sequences of
N tokens, H heads of width d, model width D, L layers. Layers and heads are counted from 0
everywhere; the states "after m layers" are the embeddings for m = 0. The inverse temperature
β = 1/√d stands in front of the dot products, as in [vaswani2017attention, Eq. (1)].

- `checkpoints` loads causal language models by the library transformers, and `soft_map` makes a
  dynamical system of one, with a module `soft_map_...` for each task.
- `minilm` loads the pretrained encoder, `encoder` runs it. `decoder` runs a generator of the layout
  of Llama block by block. `untrained` has models of random weights, and `text` has texts.
- `heads` says what attention heads of any torch model do to their energies.

What a user asks for most is exported by the room itself, as in
`from spinformer.language import SoftTokenMap`.
"""

from typing import TYPE_CHECKING

from spinformer.core.lazy import names_on_demand

if TYPE_CHECKING:
    from spinformer.language.checkpoints import (
        Checkpoint as Checkpoint,
        load_checkpoint as load_checkpoint,
    )
    from spinformer.language.decoder import (
        Decoder as Decoder,
        block_queries as block_queries,
        encode as encode,
        load_decoder as load_decoder,
        run_decoder as run_decoder,
    )
    from spinformer.language.encoder import (
        LanguageModel as LanguageModel,
        LayerTrace as LayerTrace,
        run_model as run_model,
    )
    from spinformer.language.heads import (
        HeadReport as HeadReport,
        head_report as head_report,
        overlap_energy as overlap_energy,
    )
    from spinformer.language.minilm import (
        ModelUnavailable as ModelUnavailable,
        load_model as load_model,
    )
    from spinformer.language.soft_map import (
        SoftTokenMap as SoftTokenMap,
    )
    from spinformer.language.soft_map_attractors import (
        Thresholds as Thresholds,
        TokenAttractors as TokenAttractors,
    )
    from spinformer.language.soft_map_fixed_points import (
        CriticalBeta as CriticalBeta,
    )
    from spinformer.language.soft_map_greedy import (
        GreedyCycles as GreedyCycles,
    )
    from spinformer.language.soft_map_lyapunov import (
        LyapunovSpectrum as LyapunovSpectrum,
    )
    from spinformer.language.soft_map_stream import (
        Stream as Stream,
    )
    from spinformer.language.text import (
        sample_text as sample_text,
        sample_texts as sample_texts,
        text_windows as text_windows,
    )
    from spinformer.language.untrained import (
        example_causal_model as example_causal_model,
        example_model as example_model,
        random_weights as random_weights,
    )

__getattr__, __dir__, __all__ = names_on_demand(
    __name__,
    __path__,
    exports={
        "checkpoints": ("Checkpoint", "load_checkpoint"),
        "decoder": ("Decoder", "block_queries", "encode", "load_decoder", "run_decoder"),
        "encoder": ("LanguageModel", "LayerTrace", "run_model"),
        "heads": ("HeadReport", "head_report", "overlap_energy"),
        "minilm": ("ModelUnavailable", "load_model"),
        "soft_map": ("SoftTokenMap",),
        "soft_map_attractors": ("TokenAttractors", "Thresholds"),
        "soft_map_fixed_points": ("CriticalBeta",),
        "soft_map_greedy": ("GreedyCycles",),
        "soft_map_lyapunov": ("LyapunovSpectrum",),
        "soft_map_stream": ("Stream",),
        "text": ("sample_text", "sample_texts", "text_windows"),
        "untrained": ("example_causal_model", "example_model", "random_weights"),
    },
)
