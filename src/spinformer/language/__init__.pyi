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
