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
