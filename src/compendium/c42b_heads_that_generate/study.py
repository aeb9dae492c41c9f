"""What the 270 heads of a generator do to their own energies, and what kind of head each is.

Measured as for MiniLM in chapter 14: seven texts of 128 tokens, the change of a head's own overlap
energy U by the step it takes, whole, common to all tokens, specific to one; nulls of turned heads.
Float32 sums of a thousand terms: tolerances are 1e-3 of a change's size.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bookmaker.tables import Rows, stored
from compendium.common.corpora import corpus as texts_of
from compendium.common.decoder import Decoder, encode
from compendium.common.models import decoder, text_numbers
from compendium.common.rows import parameter_product, rows_of, share_rows
from spinformer.core.statistics import student_interval
from spinformer.language.heads import HeadReport, head_report, overlap_energy
from spinformer.language.traces import LayerTrace, output_matrix, project, trace_layers


def text_inputs(model: Decoder, *, length: int = 128) -> Tensor:
    """The first `length` words of the seven texts, embedded: (7, length, D)."""
    return model.embedding[torch.stack([numbers[:length] for numbers in text_numbers(model)])]


def kinds(trace: LayerTrace) -> dict[str, Tensor]:
    """Mean attention (H,) to the first token and to the one before, from the second token on."""
    seen = trace.attention[:, :, 1:]
    previous = seen.diagonal(0, -2, -1)
    return {"sink": seen[..., 0].mean((0, 2)), "previous": previous.mean((0, 2))}


def stage_changes(model: Decoder, trace: LayerTrace) -> dict[str, Tensor]:
    """Change of U (B, H) with its keys held, mean over tokens, by attention and the block."""
    keys = trace.keys.repeat_interleave(model.heads // trace.keys.shape[1], 1)

    def energy(states: Tensor) -> Tensor:
        asked = project(model.model, trace.layer, "query", states=states)
        depth = overlap_energy(asked, keys=keys, beta=trace.beta, mask=trace.mask)
        return depth[..., 1:].mean(-1)

    before = energy(trace.inputs)
    after = {"attention": trace.residual, "block": trace.outputs}
    return {name: energy(states) - before for name, states in after.items()}


def layer_report(model: Decoder, trace: LayerTrace, *, draws: int) -> HeadReport:
    """What the heads of a layer do to their energies."""
    return head_report(
        trace.queries,
        keys=trace.keys,
        values=trace.values,
        states=trace.inputs,
        read=lambda states: project(model.model, trace.layer, "query", states=states),
        output=output_matrix(model.model, trace.layer),
        outputs=trace.attended,
        mask=trace.mask,
        draws=draws,
    )


@stored(
    "heads",
    parameter_product(layer=range(30)),
    checked=2,
    seconds=8.0,
    rtol=1e-2,
    within=dict.fromkeys(("whole", "common", "specific", "attention", "block"), 1e-3),
)
def head_table(layer: int) -> Rows:
    """Energies and kinds of the nine heads of a layer; `_error`: half of the 95 % interval.

    whole, common, specific: change of the head's own U by its own step; `_z`: in spreads of the
    null. layer_attention, layer_block: change of U of all heads of the layer together by all that
    its attention, and the whole block, add.
    """
    model = decoder()
    trace = trace_layers(model.model, text_inputs(model), layers=[layer])[0]
    report = layer_report(model, trace, draws=20)
    told = report.table()
    names = [name for name in told[0] if name != "fell" and "cosine" not in name]
    columns: dict[str, Any] = {name: [row[name] for row in told] for name in names}
    for name, changes in stage_changes(model, trace).items():
        total = changes.sum(1).numpy()
        low, high = student_interval(total)
        columns |= {f"layer_{name}": total.mean(), f"layer_{name}_error": 0.5 * (high - low)}
    return rows_of(**columns, **kinds(trace))


# More than this of a head's attention on the first token makes it a sink.
SINK = 0.5


def corpus_inputs(model: Decoder, corpus: str, *, count: int, length: int = 128) -> Tensor:
    """Embedded beginnings (n, length, D) of up to `count` long texts of a corpus."""
    numbers = [encode(model, text) for text in texts_of(corpus)]
    long = [text[:length] for text in numbers if len(text) >= length]
    chosen = np.random.default_rng(0).permutation(len(long))[:count]
    return model.embedding[torch.stack([long[k] for k in np.sort(chosen)])]


@stored(
    "by_text",
    parameter_product(corpus=("texts", "help")),
    small={"corpus": "texts", "count": 2, "blocks": 2},
    seconds=5.0,
    within=dict.fromkeys(("whole", "specific", "sinks_climb", "others_climb"), 2)
    | dict.fromkeys(("attention", "block"), 1),
)
def text_table(corpus: str, *, count: int = 8, blocks: int = 30) -> Rows:
    """Counts of heads and layers, text by text, by the sign of the mean over its tokens.

    whole, specific: of how many of the heads U is lower by that part of the step; sinks, others:
    how many heads are of the kind, and climb by the whole step; attention, block: in how many of
    the layers U of all heads together is lower.
    """
    model = decoder()
    states = corpus_inputs(model, corpus, count=count)
    found: dict[str, Any] = {}

    def add(name: str, chosen: Tensor) -> None:
        found[name] = found.get(name, 0) + chosen.reshape(len(chosen), -1).sum(1).numpy()

    for trace in trace_layers(model.model, states, layers=range(blocks)):
        report = layer_report(model, trace, draws=0)
        whole, specific = torch.as_tensor(report.whole), torch.as_tensor(report.specific)
        sink = trace.attention[:, :, 1:, 0].mean(2) > SINK
        add("whole", whole < 0)
        add("specific", specific < 0)
        for name, kind in (("sinks", sink), ("others", ~sink)):
            add(name, kind)
            add(f"{name}_climb", kind & (whole > 0))
        for name, changes in stage_changes(model, trace).items():
            add(name, changes.sum(1) < 0)
    first = 0 if corpus == "texts" else 100
    sizes = {"heads": model.heads * blocks, "layers": blocks}
    return rows_of(data=first + np.arange(len(states)), **sizes, **found)


def of_corpus(corpus: str) -> list[dict[str, int]]:
    """The counts of each text of a corpus."""
    table = text_table.read()
    return [
        {name: int(column[k]) for name, column in table.items() if name != "corpus"}
        for k in np.flatnonzero(table["corpus"] == corpus)
    ]


def smaller(text: dict[str, int], margins: list[tuple[float, float, float]]) -> dict[str, Any]:
    """The line of a text whose margins, each with its interval, must all be above zero."""
    value, low, high = (float(ends) for ends in np.min(margins, axis=0))
    return {"data": text["data"], "value": value, "low": low, "high": high, "runs": 1}


@stored("settings_R6", parameter_product(corpus=("texts", "help")), seconds=0.1)
def settings_R6(corpus: str) -> Rows:
    """Share of heads that do as the encoder's, less twice that of the others, of both parts.

    By the whole step the heads of the encoder fall, by the specific part they rise. Intervals
    over the heads.
    """
    rows = []
    for text in of_corpus(corpus):
        margins = []
        for agree in (text["whole"], text["heads"] - text["specific"]):
            share = agree / text["heads"]
            half = 1.96 * 3 * (share * (1 - share) / text["heads"]) ** 0.5
            margin = share - 2 * (1 - share)
            margins.append((margin, margin - half, margin + half))
        rows.append(smaller(text, margins))
    return rows


@stored("settings_R7", parameter_product(corpus=("texts", "help")), seconds=0.1)
def settings_R7(corpus: str) -> Rows:
    """Share of layers whose energy attention lowers, less a half, or a half less the block's."""
    rows = []
    for text in of_corpus(corpus):
        margins = []
        for name, sign in (("attention", 1), ("block", -1)):
            [line] = share_rows(text[name], trials=text["layers"], bound=0.5, sign=sign)
            margins.append((line["value"], line["low"], line["high"]))
        rows.append(smaller(text, margins))
    return rows


@stored("settings_R8", parameter_product(corpus=("texts", "help")), seconds=0.1)
def settings_R8(corpus: str) -> Rows:
    """Difference of the shares of sinks and of others that climb, less 0.3."""
    rows = []
    for text in of_corpus(corpus):
        shares = []
        variance = 0.0
        for kind in ("sinks", "others"):
            share = text[f"{kind}_climb"] / text[kind]
            shares.append(share)
            variance += share * (1 - share) / text[kind]
        gap, half = shares[0] - shares[1], 1.96 * variance**0.5
        # The smallest size that a difference within the interval has.
        least = max(abs(gap) - half, 0.0)
        rows.append(smaller(text, [(abs(gap) - 0.3, least - 0.3, abs(gap) + half - 0.3)]))
    return rows
