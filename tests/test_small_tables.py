"""Studies whose stored tables are computed again at night only, at a size that takes a moment.

    python tests/test_small_tables.py NAME…   # keeps anew what these give, all if none is named

The sizes are constants of the study, and the generator is a small random one. What
is kept in `data/small_tables` is no result of the book: it tells a fault in the code of a study.
The tables themselves are computed again in `make test-all`, see `test_tables`.
"""

import inspect
import json
import re
import sys
import warnings
import zlib
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib import import_module
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from known_generators import example_decoder
from small_runs import ROOT, differences, keep, means

from bookmaker.tables import Table, rows_as_text, tables_of
from compendium.c13_memory_density.study import learn_digits
from compendium.common import models
from compendium.common.decoder import Decoder
from spinformer.language.checkpoints import Checkpoint, load_checkpoint
from spinformer.language.minilm import ModelUnavailable

FOLDER = ROOT / "tests" / "data" / "small_tables"
SHOWN = 12


@dataclass(frozen=True)
class Case:
    """A study, what it is called with, and constants of its modules that are smaller."""

    study: str
    arguments: dict[str, Any]
    constants: dict[str, Any] = field(default_factory=dict)

    @property
    def chapter(self) -> str:
        """Of a study of c10_attention, and of a table of 10_attention, 10_attention."""
        return self.study.partition(":")[0].partition(".")[0].removeprefix("c")

    @property
    def name(self) -> str:
        """What tells it from the others."""
        return f"{self.study} {' '.join(map(str, self.arguments.values()))}".strip()


def case(study: str, constants: dict[str, Any] | None = None, **arguments: Any) -> Case:
    return Case(study, arguments, constants or {})


class Less:
    """A function of a study with other values of some arguments, which ask it for less."""

    def __init__(self, **values: Any) -> None:
        self.values = values

    def of(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """That function."""

        def less(*arguments: Any, **options: Any) -> Any:
            return function(*arguments, **options | self.values)

        return less


def any_windows(soft: Any, corpus: str, *, count: int, seed: int) -> torch.Tensor:
    """Words that a small generator has."""
    return torch.arange(count * soft.window).view(count, -1) * seed % 31


# The help of another Python has other pages.
HELP = {"help_text": lambda: torch.arange(4000).square() % 37}
FEW = {"sample_texts": lambda: dict(islice(SAMPLES.items(), 2))}
C14B, C15, C17 = "c14b_heads_and_fixed_points", "c15_demonstrations", "c17_interacting_patterns"
READERS = {"STEPS": 4, "SEEDS": 2, "BATCH": 4, "TEST": 20}
C23C = "c23c_real_layer.study"
LAYER = {"LENGTH": 12, "WINDOWS": 1}
THREE = {"sample_texts": lambda: dict(islice(SAMPLES.items(), 3))}
C33F = "c33f_counting_points.study"
POINTS = {"data": 4009, "kept": 300, "bins": 300}
C18, C25B = "c18_learning_attention.study", "c25b_learning_under_a_drive.study"
SHORT = {"train_retrieval": Less(runs=2, steps=4)}
FIRST = {"UPDATES": 4, "LOOKS": (0, 2)}
C33B = "c33b_lifetimes.escapes"
CENSUS = {"_WAIT": 20, "_EXPONENT": 40, "BETAS": 2, "WINDOWS": 2}
C24 = "c24_training"
FEWER = {"common.training_grids.train_arm": Less(steps=4)}
C42A = "42a_beyond_the_fixed_point"
STEPS = {"settle": 0, "measure": 4, "last": 2}
C33, C36, C42D = (
    "c33_phase_transitions",
    "c36_learning_through_the_limit",
    "42d_while_a_model_learns",
)
# Blocks that fit the small generator, and texts in place of the help's pages.
VARIANT = {"_BLOCK": 8, "corpus": lambda _: list(map(str.swapcase, SAMPLES.values()))}
MAPPED = {"window": 2, "betas": (0.3, 1.0), "transient": 1, "steps": 4}
CASES = [
    case("c10_attention.study.exponents_table", family="kernel", kind="share"),
    case("c11_discrete_memories.study.capacity_table", {"NETWORKS": {40: 2}}, dim=40),
    case(
        "c11_discrete_memories.study.settings_A6",
        {"lost_overlap": Less(networks=2)},
        data=1,
        small=60,
        start=0.8,
        diagonal="kept",
    ),
    case("c12c_hidden_neurons.boltzmann.settings_a18d", data=1, target="random", hidden=1, draws=2),
    case("c11b_load_and_temperature.study.copies_table", dim=60, temperature=0.9),
    case("c12c_hidden_neurons.study.ends_table", start="empty", ratio=3.0),
    case("c12c_hidden_neurons.study.settings_A9b", data=1, start="empty", ratio=3.0, beta=0.8),
    case(
        "c13_memory_density.study.digits_table",
        {"PATTERNS": 4, "learn_digits": partial(learn_digits, patterns=4, steps=6)},
        pictures="equal norm",
        seed=0,
    ),
    # The best of three rates is another one in each.
    *(
        case(
            "c13_memory_density.study.lost_by_cd",
            pictures="raw",
            beta=beta,
            schedule=schedule,
            split=0,
        )
        for beta, schedule in ((0.5, "annealed"), (1.0, "constant"))
    ),
    case(
        "c13_memory_density.study.settings_A12",
        {"lost_by_cd": lambda *_, split, **__: split**2 / 1e4},
        data=3,
        pictures="raw",
        beta=0.5,
        schedule="constant",
    ),
    case("c14_real_transformer.steps.untrained_table", FEW, kind="initial", seed=1),
    case("c14_real_transformer.steps.untrained_table", FEW, kind="shuffled", seed=0),
    case("c14_real_transformer.steps.steps_table", {"LENGTHS": (40,)}, length=20, source="law"),
    case("c14_real_transformer.steps.stages_table", {"LENGTHS": (40,)}, length=20, source="law"),
    case(
        "c14_real_transformer.steps.turned_table",
        {"LENGTHS": (40,), "TEXTS": ("law", "verse")},
        length=20,
        seed=1,
    ),
    case(
        "c14_real_transformer.steps.settings_A14b",
        {"LENGTHS": (80,)},
        data="law 20",
        source="law",
        length=20,
    ),
    case(f"{C14B}.sizes.sizes_table", {"LENGTHS": (16, 32)}, source="random 1"),
    case(f"{C14B}.loops.kinds_rows", source="essay", length=16, window=1, loop="keys"),
    case(f"{C14B}.loops.generator_table", FEW, layer=1),
    case(
        f"{C14B}.loops.gain_table",
        {"GAINS": (1.0, 4.0), "trace_layers": Less(layers=[2])},
        loop="turned",
        source="narrative",
    ),
    case("c14c_training_and_descent.toy.toy_table", goal="avoid", steps=8, seeds=[0]),
    case(
        "c14c_training_and_descent.toy.settings_A14c",
        data=1,
        goal="recall",
        layers=1,
        rate=0.003,
        steps=8,
    ),
    case(
        f"{C15}.boundary.boundary_table",
        {"EPISODES": 6},
        training="balanced",
        first_seed=0,
        count=1,
        steps=30,
    ),
    case(
        f"{C15}.boundary.boundary_table",
        {"EPISODES": 6},
        training="linear",
        first_seed=0,
        count=1,
        steps=30,
    ),
    case(
        f"{C15}.boundary.settings_A16b",
        {
            f"{C15}.model.train": Less(steps=2),
            "boundary_saturation": lambda *_, part, ratio: (
                np.array([0.1, 0.4, 0.2]) * len(part) * ratio
            ),
        },
        data=1,
        goal="matched",
        rate=0.003,
    ),
    *(
        case("c16_energies_as_signal.scores.score_rows", source=source, seeds=(0,), steps=2)
        for source in ("autoencoder", "raw")
    ),
    *(
        case(f"{C17}.readers.hops_table", READERS, arm=arm, links=2, rate=0.1)
        for arm in ("dense", "interacting", "tied layers")
    ),
    case(f"{C17}.readers.hops_again_table", READERS, arm="directed", links=1, rate=0.3),
    case(f"{C17}.pictures.recall_table", {"COUNT": 6, "NOISE": 4.0}, seed=1),
    case(f"{C17}.pictures.completion_counts", data="faces", count=4, seed=100),
    case(
        f"{C18}.trainings_table",
        SHORT | {"RUNS": 2},
        data=1800,
        width=16,
        pairs=4,
        optimizer="Adam",
        rate=0.003,
        norm="inputs",
    ),
    case(
        f"{C18}.confirm_a25b",
        SHORT,
        data=1950,
        width=24,
        pairs=2,
        optimizer="SGD",
        rate=0.2,
        norm="queries and keys",
    ),
    case(
        f"{C18}.settings_a20",
        {"train_retrieval": Less(runs=2, steps=40)},
        data=1850,
        width=16,
        pairs=4,
        optimizer="Adam",
        rate=0.003,
    ),
    case(
        "c18b_trained_couplings.bottleneck.bottleneck_lines",
        data="essay",
        couplings="trained",
        source="essay",
        length=16,
        number=0,
    ),
    case(
        "c21a_cheap_free_energies.study.errors_table",
        {"theory_errors": Less(sweeps=50)},
        kind="gaussian",
        size=16,
        copy=1,
    ),
    case(
        "c21a_cheap_free_energies.study.colder_table",
        {"theory_errors": Less(sweeps=50)},
        size=16,
        copy=1,
    ),
    case(
        "c21a_cheap_free_energies.settings.confirm_b7b",
        {
            "theory_errors": lambda kind, size, sweeps, seed, beta: {
                theory: (1 + seed % (7 + power)) / (beta * size) ** power
                for power, theory in enumerate(("naive", "tap", "adaptive", "beliefs"))
            }
        },
        group=1,
    ),
    case(
        "c21a_cheap_free_energies.settings.confirm_b7c",
        {"FRESH": {4: 2, 6: 2, 8: 2}, "overlap_run": Less(sweeps=30)},
        group=1,
    ),
    case(
        "c22_vector_spins.glass.settings_b3b",
        {"sample_vector_spins": Less(sweeps=8)},
        data=1,
        components=2,
        kind="signs",
        size=8,
        systems=2,
    ),
    case(
        "c22_vector_spins.settings.advantage_rows",
        {"TRIPLES": 3},
        data=100,
        components=2,
        strength=0.3,
        field=0.5,
    ),
    case(
        "c22_vector_spins.study.rivals",
        {"triple_errors": Less(draws=2)},
        strength=0.6,
        field=1.0,
        beta=1.0,
    ),
    case(
        "c23_anatomy.study.learned_table",
        {"FITS": {"clusters": ((40, 10),)}},
        gamma=1.0,
        surroundings="clusters",
        seed=0,
    ),
    case(
        "c23_anatomy.study.learned_kept",
        {"FITS": {"clusters": ((40, 10),)}},
        gamma=1.0,
        surroundings="clusters",
        seed=0,
    ),
    case(
        "c23_anatomy.settings.confirm_b12",
        {"SHORT": (40, 5)},
        diagonal="kept",
        surroundings="random",
        gamma=0.5,
        steps=5,
    ),
    case(f"{C23C}.layers_table", LAYER | THREE, layer=2),
    case(f"{C23C}.generator_table", {"LENGTH": 8, "WINDOWS": 1}, layer=1),
    case("c23c_real_layer.settings.settings_b9d", {"TOKENS": 16}, length=16, place="first"),
    case("c23c_real_layer.settings.settings_b9e", {"TOKENS": 16}, length=16, place="second"),
    case(
        f"{C24}.study.result_rows",
        {"STARTS": 1, "sample_module": Less(sweeps=5)},
        experiment="digits",
        arm="saddle",
        splits=1,
        updates=4,
    ),
    case(
        f"{C24}.study.result_rows",
        {"STARTS": 1},
        experiment="copies",
        arm="attention",
        splits=1,
        updates=4,
    ),
    case(
        f"{C24}.settings.confirm_b10",
        FEWER | {"fresh_leads": Less(splits=range(30, 31), looks=(2, 4))},
        null="answers only",
        updates=200,
    ),
    case(
        f"{C24}.settings.confirm_b10b",
        FEWER | {"FRESH_SPLITS": range(30, 31), "fresh_leads": Less(looks=(2, 4))},
        strength=2.0,
        updates=60,
    ),
    case(
        f"{C24}.settings.confirm_b10d",
        FEWER | {"fresh_leads": Less(looks=(2, 4), splits=range(30, 31))},
        strength=0.2,
    ),
    case(
        "c24a_teacher_and_student.settings.band_rows",
        {
            "error_ratios": lambda samples, noise, seed: np.sqrt(
                np.arange(1, 6) * noise * seed / samples
            )
        },
        data=1000,
        samples=4,
        noise=0.001,
    ),
    case(
        "c24a_teacher_and_student.study.teacher_table",
        {"TEACHERS": 2, "learn": Less(steps=8)},
        data="theory",
        student="saddle",
        samples=2,
    ),
    case(
        "c24a_teacher_and_student.study.scale_table",
        {"TEACHERS": 2, "learn": Less(steps=8)},
        data="spins",
        samples=2,
    ),
    case(
        "c24b_parts_of_a_layer.settings.confirm_b11", strength=0.2, rate=0.0018, count=1, updates=4
    ),
    case(
        "c24b_parts_of_a_layer.layer_parts.settings_b1c",
        {"UPDATES": 4, "SPLITS": range(20, 21)},
        task="digits",
        mixer="averaging",
        removed="skip, feed-forward",
    ),
    case("c25_driven.vectors.vector_sizes", {"_HERMITE": 6}, symmetry=0.0, size=16, systems=2),
    case(
        "c24b_parts_of_a_layer.layer_parts.layer_parts",
        {"UPDATES": 4},
        task="recall",
        mixer="averaging",
        removed="skip",
        count=1,
    ),
    case(
        "c24b_parts_of_a_layer.settings.fresh_b8c",
        {"train_arm": Less(steps=4, looks=(4,)), "fresh_trainings": Less(looks=(4,))},
        task="recall",
        strength=2.0,
        first=36,
    ),
    case(
        "c24b_parts_of_a_layer.layer_parts.settings_b1b",
        {"UPDATES": 1, "CHANNELS": 8},
        task="recall",
        mixer="averaging",
    ),
    case(f"{C25B}.tuning_table", HELP | FIRST, task="recall", arm="symmetric"),
    case(f"{C25B}.recall_table", FIRST, arm="shuffled", seed=1),
    case(f"{C25B}.recall_table", FIRST, arm="one step", seed=0),
    case(f"{C25B}.text_table", HELP | FIRST, arm="uniform", split=1, seed=0),
    case(f"{C25B}.counts_table", HELP, split=1),
    case(
        "c26_architectures.study.errors_table",
        {"architecture_errors": Less(sweeps=16)},
        gamma=1.0,
        strength=0.5,
        seed=0,
    ),
    case(
        "c26_architectures.study.own_table", {"own_errors": Less(sweeps=16)}, strength=0.5, seed=0
    ),
    *(
        case(
            f"c26_architectures.study.{study}",
            {"_SYSTEMS": 2, "sample_reference": Less(sweeps=16)},
            data=1,
            tokens=6,
            dim=4,
            gamma=1.0,
            position=0.5,
            strength=0.5,
        )
        for study in ("settings_b20", "gain_by_iteration")
    ),
    case(
        "c26_architectures.mixers.mixers_table",
        {"UPDATES": 4},
        task="recall",
        kind="linear",
        count=1,
    ),
    case(
        "c32b_finite_size.settings.settings_c18c",
        {
            "_RUNS": 2,
            "stationary_distances": lambda beta, exponent, seed: [
                {"floor": beta, "distance": exponent + seed}
            ],
        },
        data=100,
        regime="chaotic",
        beta=1.28,
        decade=6.0,
    ),
    case("c32c_gaussian_closure.study.breaks_table", {"deviation": Less(texts=20)}, start=3),
    case(
        f"{C33}.slow.relaxation_times_table",
        {"random_contexts": Less(count=400), "relaxation_time": Less(steps=480)},
        motion="chaos at 1.28",
        seed=1,
    ),
    case(
        f"{C33}.study.shares_table",
        {
            "poclopez2024_context": Less(steps=2000),
            "find_attractors": Less(transient=2000, kept=400, exponent_steps=200),
        },
        diagram="zoom",
        low=1.2675,
        high=1.28,
        count=9,
    ),
    case("c33c_bifurcations.study.staircase_table", low=1.2675, high=1.26758, count=2),
    case(f"{C33F}.cycle_labels", {"VALUES": 6}, data=4000, kept=300, bins=300),
    case(
        f"{C33B}.crisis_table",
        {
            "_COPIES": 2,
            "escape_times": Less(horizon=5000, rate=1.0),
            "lyapunov_spectrum": Less(steps=400, batches=20),
        },
        distance=1e-5,
    ),
    case(
        "c33b_lifetimes.switching.orbits_table",
        {"chaotic_orbits": Less(count=3)},
        beta=1.28,
        seed=1,
        flashes=800,
    ),
    case(
        "c33b_lifetimes.settings.confirm_c21",
        {"chaotic_orbits": Less(count=3)},
        data="1.2657-11",
        beta=1.2657,
        seed=11,
        flashes=800,
    ),
    case(
        "c33b_lifetimes.finite_size_escapes.actions_table",
        cycle=1,
        size=1500,
        guesses=1,
        max_steps=2,
    ),
    case("c33e_census.study.finer_table", values=32, family=1500, networks=12),
    case(
        f"{C33F}.counts_table",
        {"count_points": Less(kept=300, bins=300)},
        beta_from=1.24,
    ),
    case(f"{C33F}.both_labels", {"VALUES": 6}, **POINTS),
    case(f"{C33F}.same_labels", {"VALUES": 6}, **POINTS),
    case(f"{C33F}.roles_table", {"VALUES": 6}, kept=300, bins=300),
    case("c33g_sign_probability.study.fractions_table", {"NETWORKS": 2}, probability=0.6),
    case(
        "c33g_sign_probability.study.fraction_rows",
        {"NETWORKS": 3},
        data=500,
        probability=0.6,
        epsilon=0.02,
        bits=2,
    ),
    case(
        "c34_memory_beyond_window.study.memory_times_table",
        {"LONGEST": {"driven": 32}},
        motion="driven",
        start=1,
        sizes=(9999, 99_999),
    ),
    case(
        "c34_memory_beyond_window.settings.slow_motion",
        {"_SAMPLES": 400, "_ORBITS": 3, "trajectory": Less(transient=100)},
        data=1,
        beta=1.255,
        law="uniform",
    ),
    case(
        "c35b_scaling_and_blocks.settings.settings_c23",
        {f"c35b_scaling_and_blocks.blocks.{name}": value for name, value in CENSUS.items()},
        data="2-0.1-residual 1",
        condition="residual 1",
        epsilon=0.1,
        family=2,
    ),
    case(
        "c35b_scaling_and_blocks.blocks.census_table",
        CENSUS | {"_CHUNK": 2},
        condition="feed 1",
        family=1,
        chunk=1,
    ),
    case(
        f"{C36}.learning.tuning_table",
        {"train": Less(updates=6)},
        task="cycle",
        arm="score, 99",
        copies=2,
        rate=0.1,
    ),
    case(
        f"{C36}.learning.tuning_table",
        {"train": Less(updates=4)},
        task="bytes",
        arm="straight, 9900",
        copies=1,
        rate=0.3,
    ),
    case(f"{C36}.horizons.growth_table", motion="quasi-periodic", chunk=0),
    case("c37_statistics_of_attention.study.motions_table", {"TEXTS": 20}, beta=1.2, size=99),
    case(
        "c37_statistics_of_attention.study.replaced_texts",
        data=200,
        weights="normal",
        gamma=4.0,
        beta=0.8,
        size=99,
    ),
    case("42_generator_as_a_map:rests", span=4, beta=1.5, bits=32),
    case(
        "42_generator_as_a_map:short_windows",
        {"checkpoint": lambda: quieter_checkpoint()},
        window=1,
        highest=1.2,
    ),
    case("42_generator_as_a_map:pairs", span=4, beta=1.5),
    case("42_generator_as_a_map:cycle", span=4, beta=1.5),
    case(
        "42_generator_as_a_map:circles", {"CIRCLES": {8: (1.0, 3.0)}}, span=8, settle=8, measure=8
    ),
    case("42_generator_as_a_map:onset", span=8, settle=20, block=4),
    case("42_generator_as_a_map:noise", beta=0.5, samples=100),
    case(f"{C42A}:branches", span=8, steps=3, values=3),
    case(f"{C42A}:card", span=4, beta=5.0, count=1, settle=0, measure=4, last=2),
    case(f"{C42A}:cold", span=4, beta=16.0, steps=12, last=4),
    case(f"{C42A}:settings_R3", window=2, prefix="template", beta=0.3, transient=0, steps=4),
    case(
        f"{C42A}:confirm_R3",
        {"text_windows": any_windows},
        window=2,
        prefix="prompt",
        beta=0.3,
        transient=0,
        steps=4,
    ),
    *(
        case(f"{C42A}:confirm_R4", {"text_windows": any_windows}, beta=beta, count=2, settle=1)
        for beta in (0.4, 0.6)
    ),
    case(f"{C42A}:controls", weights="shuffled attention", parts="all", **STEPS),
    case(f"{C42A}:diagram", span=8, steps=12, streams=12, last=4),
    case(f"{C42A}:lives", span=4, beta=0.3, horizon=60),
    case(f"{C42A}:loops", span=4, horizon=60),
    case(f"{C42A}:motions", span=4, count=2, **STEPS),
    case(f"{C42A}:prompts", beta=1.0, steps=12),
    case(f"{C42A}:samples", beta=1.0, samples=100, steps=3),
    case(f"{C42A}:settings_R4", beta=1.0, count=2, settle=1),
    case(f"{C42A}:streams", span=8, beta=1.0, settle=1, align=1, measure=2),
    case(f"{C42A}:untrained", weights="fresh", draw=1, span=4, **STEPS),
    case(
        f"{C42A}:fresh_streams",
        {"text_windows": any_windows},
        span=6,
        beta=0.3,
        count=2,
        settle=1,
        align=1,
        measure=3,
    ),
    case(f"{C42A}:confirm_R5", {"text_windows": any_windows, "LOOP_BY": 40}, span=2, count=3),
    case("42b_heads_that_generate:by_text", corpus="texts", count=2, blocks=2),
    case("42b_heads_that_generate:heads", layer=1),
    case(
        "42c_what_left_the_window:settings_R9",
        data=0,
        window=2,
        beta=1.0,
        corpus="texts",
        pairs=2,
        copies=4,
    ),
    case(
        "42c_what_left_the_window:confirm_R9",
        data=3,
        window=2,
        beta=0.5,
        corpus="texts",
        pairs=3,
        copies=4,
    ),
    case("42c_what_left_the_window:left", span=4, beta=1.0, count=8),
    case("42c_what_left_the_window:recurrences", source="texts"),
    case("c42c_what_left_the_window.study.words_of", source="window 4"),
    case("42c_what_left_the_window:settings_R10", data=0),
    case(
        "42d_while_a_model_learns:atlas",
        {"BETAS": (0.3,)},
        window=2,
        prefix="first token",
        transient=2,
        steps=6,
    ),
    *(
        case(f"{C42D}:conventions", VARIANT, prefix=prefix, variant=variant, **MAPPED)
        for prefix, variant in (
            ("none", "nucleus"),
            ("none", "rounded again"),
            ("first token", "random words"),
            ("first token", "other texts"),
        )
    ),
    case(f"{C42D}:nuclei", VARIANT, top_p=0.5, window=2, beta=0.3, transient=1, steps=4),
    case(f"{C42D}:roundings", VARIANT, shift=4, window=1, within=(0.1, 8.0)),
    case(
        "42d_while_a_model_learns:learning",
        size="small",
        seed=0,
        checkpoints=(0, 2),
        transient=2,
        steps=6,
    ),
]


SAMPLES = models.sample_texts()
GENERATORS = ("42", "c42", "c23c_real_layer.study.generator", f"{C14B}.loops.generator")


class Words:
    """A tokenizer that gives each word a number below that of the words of a small model."""

    def __init__(self, count):
        self.count = count

    def __call__(self, text, **_):
        numbers = [zlib.crc32(word.encode()) % self.count for word in re.findall(r"\w+|\W", text)]
        return SimpleNamespace(input_ids=numbers)

    def decode(self, numbers, **_):
        return " ".join(map(str, np.ravel(numbers)))


@cache
def small_checkpoint():
    """A random generator of two layers, sixteen channels and few words, in double precision."""
    model = example_decoder(seed=3).model
    words = len(model.get_input_embeddings().weight)
    return Checkpoint(model=model, tokenizer=Words(words), name="small", quantization="none")


def quieter_checkpoint():
    """The same with smaller logits, whose fixed point is stable to higher β."""
    model = deepcopy(small_checkpoint().model)
    with torch.no_grad():
        model.model.norm.weight *= 0.5
    return replace(small_checkpoint(), model=model)


def stand_ins():
    """Where a study names the loader of a generator: the place, the name, a small generator."""
    found = small_checkpoint()

    def decoder(**_):
        return Decoder(model=found.model, tokenizer=found.tokenizer)

    def checkpoint(*_, **__):
        return found

    # Read before the first of them is replaced: other modules hold these under names of their own.
    loaders = (
        (models.decoder, decoder),
        (models.checkpoint, checkpoint),
        (load_checkpoint, checkpoint),
    )
    for name, module in list(sys.modules.items()):
        if name.startswith("compendium."):
            for loader, stand_in in loaders:
                for word, value in list(vars(module).items()):
                    if value is loader:
                        yield module, word, stand_in


def found_study(name):
    """A table of a chapter, CHAPTER:TABLE, or a name of a module of the compendium."""
    chapter, _, table = name.partition(":")
    if table:
        return tables_of(chapter)[table]
    path, _, name = name.rpartition(".")
    return getattr(import_module(f"compendium.{path}"), name)


def forget():
    """What studies have remembered of another model, or of other constants."""
    for name, module in list(sys.modules.items()):
        if name.startswith("compendium.c"):
            for value in vars(module).values():
                if (
                    hasattr(value, "cache_clear")
                    and getattr(value, "__module__", "").startswith("compendium.c")
                    and value.__module__ != models.__name__
                ):
                    value.cache_clear()
    # Made of the stand-in, where the case has one.
    models.decoder.cache_clear()


def result(one: Case) -> dict[str, Any]:
    """The columns of the rows of a case, SHOWN of them and the means, and their number."""
    study = found_study(one.study)
    function = inspect.unwrap(study.rows) if isinstance(study, Table) else study
    forget()
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("default")
        for constant, value in one.constants.items():
            path, _, name = constant.rpartition(".")
            place = import_module(f"compendium.{path}" if path else function.__module__)
            whole = getattr(place, name)
            patch.setattr(place, name, value.of(whole) if isinstance(value, Less) else value)
        if one.study.startswith(GENERATORS):
            for place, name, stand_in in stand_ins():
                patch.setattr(place, name, stand_in)
        found = study.rows(**one.arguments) if isinstance(study, Table) else study(**one.arguments)
    forget()
    rows = rows_as_text({}, found if isinstance(found, list) else [{"value": found}])
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    numbers = {}
    for key, column in columns.items():
        with suppress(ValueError):
            numbers[key] = means(np.array(column).astype(float))
    shown = {key: column[:SHOWN] for key, column in columns.items()}
    return {"rows": len(rows), "means": numbers} | shown


@pytest.mark.parametrize("one", CASES, ids=[one.name for one in CASES])
def test_a_study_gives_what_it_gave_at_a_small_size(one):
    try:
        given = result(one)
    except ModelUnavailable as error:
        pytest.skip(str(error))
    kept = json.loads((FOLDER / f"{one.chapter}.json").read_text(encoding="utf-8"))
    again = f"if it is right, keep it: python tests/test_small_tables.py {one.chapter}"
    assert differences(given, kept[one.name]) == [], again


if __name__ == "__main__":
    CHAPTERS = list(dict.fromkeys(one.chapter for one in CASES))
    keep(
        __file__,
        FOLDER,
        CHAPTERS,
        lambda chapter: {one.name: result(one) for one in CASES if one.chapter == chapter},
    )
