"""Real, small language models by the library transformers: what they compute, and as maps.

Everything that lives on tokens is a torch tensor, in the precision of the model's weights; there is
no gradient unless a state asks for one. Letters: B sequences of N tokens, H heads of width d, model
width D, L layers. Layers and heads are counted from 0 everywhere. The inverse temperature β = 1/√d
stands in front of the dot products, as in [vaswani2017attention, Eq. (1)].

- `checkpoints` loads causal language models, and `minilm` the pretrained encoder. `untrained` has
  models of random weights, and `text` has texts. `library` imports transformers.
- `traces` reads what each layer of a model computes: queries, keys, values, attention, the states
  between. `heads` says what attention heads of any torch model do to their energies.
- `soft_map` makes a dynamical system of a causal model, with a module `soft_map_...` for each task.

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
    from spinformer.language.heads import (
        HeadReport as HeadReport,
        head_report as head_report,
        overlap_energy as overlap_energy,
    )
    from spinformer.language.library import (
        ModelUnavailable as ModelUnavailable,
    )
    from spinformer.language.minilm import (
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
    from spinformer.language.traces import (
        LayerTrace as LayerTrace,
        output_matrix as output_matrix,
        project as project,
        trace_layers as trace_layers,
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
        "heads": ("HeadReport", "head_report", "overlap_energy"),
        "library": ("ModelUnavailable",),
        "minilm": ("load_model",),
        "soft_map": ("SoftTokenMap",),
        "soft_map_attractors": ("TokenAttractors", "Thresholds"),
        "soft_map_fixed_points": ("CriticalBeta",),
        "soft_map_greedy": ("GreedyCycles",),
        "soft_map_lyapunov": ("LyapunovSpectrum",),
        "soft_map_stream": ("Stream",),
        "text": ("sample_text", "sample_texts", "text_windows"),
        "traces": ("LayerTrace", "output_matrix", "project", "trace_layers"),
        "untrained": ("example_causal_model", "example_model", "random_weights"),
    },
)
