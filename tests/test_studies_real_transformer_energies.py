"""The two energies of a head: values by hand, gradients, the theorem, the accounts of a model."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from minilm_model import installed_model, installed_traces

from compendium.c14_real_transformer import energies
from spinformer.language.encoder import run_layer, run_model
from spinformer.language.text import sample_texts, text_windows
from spinformer.language.untrained import example_model

TOKENS = torch.tensor([[2, 5, 6, 7, 3], [2, 9, 9, 6, 3]])


def test_overlap_energy_by_hand():
    """Against a loop over queries and keys, two batches."""
    generator = torch.Generator().manual_seed(3)
    queries, keys = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((2, 3, 4), (2, 5, 4))
    )
    found = energies.overlap_energy(queries, keys=keys, beta=0.3)
    assert found.shape == (2, 3)
    for b in range(2):
        centered = (keys[b] - keys[b].mean(0)).numpy()
        for s in range(3):
            scores = centered @ queries[b, s].numpy()
            expected = -np.log(np.mean(np.exp(0.3 * scores))) / 0.3
            assert float(found[b, s]) == pytest.approx(expected, rel=1e-12)


def test_energy_gradient_is_autograd():
    small = example_model()
    for model, trace in (
        (installed_model(), installed_traces()[4]),
        (small, run_model(small, TOKENS)[1]),
    ):
        states = trace.inputs.clone().requires_grad_(True)
        total = energies.layer_overlap_energy(model, trace, states=states).sum()
        (gradient,) = torch.autograd.grad(total, states)
        ours = energies.energy_gradient(model, trace, states=trace.inputs)
        torch.testing.assert_close(ours, gradient, atol=1e-10, rtol=0)


def test_hopfield_step_never_raises_the_hopfield_energy():
    small = example_model()
    for model, traces in (
        (installed_model(), installed_traces()),
        (small, run_model(small, TOKENS)),
    ):
        for trace in traces:
            before, after = energies.stage_energies(model, trace, "hopfield")
            assert float((after["hopfield"] - before).max()) <= 1e-10
            assert set(after) == set(energies.STAGES)


def test_stages_are_read_by_the_layers_own_query_map():
    """Every stage of a small layer, one token and one head, written out in NumPy."""
    model = example_model(seed=6)
    trace = run_model(model, TOKENS)[1]
    name = "encoder.layer.1.attention.self.query"
    head, token, sequence = 1, 3, 1
    matrix = model.weights[name + ".weight"][4:].numpy()
    bias = model.weights[name + ".bias"][4:].numpy()
    keys = trace.keys[sequence, head].numpy()

    def scored(query):
        return keys @ query / 2

    states = {
        "attention": trace.attended,
        "residual": trace.inputs + trace.attended,
        "layer norm": trace.normalized,
        "feed forward": trace.outputs,
    }
    queries = {stage: matrix @ x[sequence, token].numpy() + bias for stage, x in states.items()}
    start = matrix @ trace.inputs[sequence, token].numpy() + bias
    weights = np.exp(scored(start)) / np.exp(scored(start)).sum()
    queries["hopfield"] = weights @ keys
    shift = keys.mean(0)
    expected = {
        "hopfield": lambda q: 0.5 * q @ q - 2 * np.log(np.exp(scored(q)).sum()),
        "overlap": lambda q: -2 * (np.log(np.exp(scored(q) - shift @ q / 2).mean())),
    }
    for kind, energy in expected.items():
        before, after = energies.stage_energies(model, trace, kind)
        assert float(before[sequence, head, token]) == pytest.approx(energy(start), rel=1e-10)
        for stage, query in queries.items():
            found = float(after[stage][sequence, head, token])
            assert found == pytest.approx(energy(query), rel=1e-10), stage


@settings(deadline=None, max_examples=25, derandomize=True)
@given(st.integers(0, 10_000), st.floats(0.01, 30.0))
def test_aligned_steps_of_any_length_lower_the_overlap_energy(seed, scale):
    """U is concave: a step with update·(−∇U) > 0 lowers it, however long; 0 exceptions."""
    model = example_model(seed=seed % 7)
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(2, 6, 8, generator=generator, dtype=torch.float64)
    trace = run_layer(model, 0, inputs=inputs)
    update = torch.randn(2, 6, 8, generator=generator, dtype=torch.float64)
    gradient = energies.energy_gradient(model, trace, states=inputs)
    change = energies.energy_along(model, trace, direction=update, scales=[scale])[0]
    aligned = energies.alignment(update, gradient=gradient) > 1e-9
    assert bool(aligned.any())
    assert bool((change[aligned] < 0).all())


def test_short_steps_change_the_energy_by_their_slope():
    """The bound is reached: U(x + sΔ) − U(x) ≤ s Δ·∇U, equal to order s."""
    model = example_model()
    trace = run_model(model, TOKENS)[0]
    generator = torch.Generator().manual_seed(0)
    update = torch.randn(trace.inputs.shape, generator=generator, dtype=torch.float64)
    slope = (update * energies.energy_gradient(model, trace, states=trace.inputs)).sum(-1)
    change = energies.energy_along(model, trace, direction=update, scales=[1e-5, 1.0])
    torch.testing.assert_close(change[0] / 1e-5, slope, atol=1e-3, rtol=1e-3)
    assert bool((change[0] <= 1e-5 * slope + 1e-12).all())
    assert bool((change[1] <= slope).all())


def test_aligned_attention_steps_of_the_model_lower_the_energy():
    """All of them, in every layer: U is concave in the hidden state."""
    account = energies.account_steps(installed_model(), installed_traces())
    assert (account.aligned_fell == account.aligned).all()
    assert (account.aligned + account.opposed == 2 * 64).all()
    assert account.aligned.sum() > 100
    assert account.opposed.sum() > 100


def test_step_account_by_hand():
    """Counts and cosines of a small model, token by token; of opposed steps some lower U."""
    model = example_model()
    scale = {name: 0.3 if "attention" in name else 1.0 for name in model.weights}
    model = replace(model, weights={name: scale[name] * w for name, w in model.weights.items()})
    generator = torch.Generator().manual_seed(0)
    traces = run_model(model, torch.randint(5, 20, (6, 10), generator=generator))
    account = energies.account_steps(model, traces)
    for layer, trace in enumerate(traces):
        descent = -energies.energy_gradient(model, trace, states=trace.inputs)
        before, after = (
            energies.layer_overlap_energy(model, trace, states=states)
            for states in (trace.inputs, trace.residual)
        )
        counts = {"aligned": 0, "aligned_fell": 0, "opposed": 0, "opposed_fell": 0}
        cosines = []
        for b in range(6):
            for t in range(10):
                step, down = trace.attended[b, t].numpy(), descent[b, t].numpy()
                cosines.append(step @ down / np.linalg.norm(step) / np.linalg.norm(down))
                name = "aligned" if cosines[-1] > 0 else "opposed"
                counts[name] += 1
                counts[name + "_fell"] += bool(after[b, t] < before[b, t])
        assert account.cosine[layer] == pytest.approx(np.mean(cosines), rel=1e-10)
        assert {name: getattr(account, name)[layer] for name in counts} == counts
        assert 0 < counts["opposed_fell"] < counts["opposed"]


def test_depth_profile_starts_at_each_layers_own_energy():
    """Its entries (l, l) and (l, l + 1) are the mean energies around layer l."""
    small = example_model()
    for model, traces in (
        (installed_model(), installed_traces()),
        (small, run_model(small, TOKENS)),
    ):
        layers = model.architecture.layers
        for kind in ("hopfield", "overlap"):
            profile = energies.depth_profile(model, traces, kind)
            assert profile.shape == (layers, layers + 1)
            for layer, trace in enumerate(traces):
                before, after = energies.stage_energies(model, trace, kind)
                assert profile[layer, layer] == pytest.approx(float(before.mean()), rel=1e-10)
                assert profile[layer, layer + 1] == pytest.approx(
                    float(after["feed forward"].mean()), rel=1e-10
                )


def test_keys_are_not_equally_long_where_tokens_nearly_are():
    """What chapter 12 says of a LayerNorm in front of attention, over all heads of the model."""
    model = installed_model()
    windows = torch.cat([text_windows(model, text, 128)[:1] for text in sample_texts().values()])
    tokens, keys, negative = [], [], []
    for trace in (t for window in windows for t in run_model(model, window[None])):
        for found, vectors in ((tokens, trace.inputs), (keys, trace.keys)):
            norms = vectors.norm(dim=-1)
            found.append((norms.std(-1) / norms.mean(-1))[0].numpy())
        products = trace.keys @ trace.keys.mT
        own = products.diagonal(dim1=-2, dim2=-1)
        others = products - torch.diag(torch.full((128,), torch.inf)).double()
        negative.append((own < others.amax(-1)).double().mean(-1)[0].numpy())
    heads = np.mean(np.reshape(keys, (7, 72)), axis=0)
    assert np.median(tokens) == pytest.approx(0.1, abs=0.02)
    assert np.median(heads) == pytest.approx(1 / 6, abs=0.01)
    assert heads.max() > 0.4
    assert np.mean(negative) == pytest.approx(1 / 3, abs=0.03)


def test_overlap_energy_ignores_gauge_and_shift():
    generator = torch.Generator().manual_seed(0)
    queries, keys, gauge = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((5, 4), (9, 4), (4, 4))
    )
    plain = energies.overlap_energy(queries, keys=keys, beta=0.7)
    moved = energies.overlap_energy(
        queries @ gauge,
        keys=keys @ torch.linalg.inv(gauge).mT + torch.arange(4.0).double(),
        beta=0.7,
    )
    torch.testing.assert_close(moved, plain, atol=1e-12, rtol=0)
    assert bool((plain <= 0).all())
    assert float(energies.overlap_energy(0 * queries, keys=keys, beta=0.7).abs().max()) < 1e-14


def ones(*shape):
    return torch.ones(shape, dtype=torch.float64)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m, t: energies.stage_energies(m, t[0], "other"), "kind"),
        (lambda m, t: energies.stage_energies(m, replace(t[0], layer=2), "overlap"), "layer"),
        (lambda m, t: energies.depth_profile(m, t, "other"), "kind"),
        (lambda m, t: energies.depth_profile(m, t[::-1], "overlap"), "traces .*all layers"),
        (lambda m, t: energies.depth_profile(m, t[:1], "overlap"), "traces .*all layers"),
        (lambda m, t: energies.account_steps(m, []), "traces"),
        (lambda m, t: energies.overlap_energy(ones(2, 3), keys=ones(0, 3), beta=1.0), "N > 0"),
        (lambda m, t: energies.overlap_energy(ones(3), keys=ones(2, 3), beta=1.0), "queries"),
        (lambda m, t: energies.overlap_energy(ones(2, 3), keys=ones(2, 4), beta=1.0), "keys"),
        (
            lambda m, t: energies.overlap_energy(ones(2, 2, 3), keys=ones(4, 2, 3), beta=1.0),
            "queries and keys must have batch shapes",
        ),
        (lambda m, t: energies.overlap_energy(ones(2, 3), keys=ones(2, 3), beta=0.0), "beta"),
        (lambda m, t: energies.alignment(ones(2, 3), gradient=ones(3)), "gradient"),
        (lambda m, t: energies.energy_along(m, t[0], direction=ones(8), scales=[1.0]), "direction"),
        (
            lambda m, t: energies.energy_along(m, t[0], direction=t[0].inputs, scales=[np.nan]),
            "scales",
        ),
        (
            lambda m, t: energies.energy_along(m, t[0], direction=t[0].inputs, scales=[]),
            "scales",
        ),
        (
            lambda m, t: energies.overlap_energy(ones(2, 3), keys=ones(2, 3).float(), beta=1.0),
            "keys must be torch.float64",
        ),
    ],
)
def test_bad_input_is_refused(call, words):
    model = example_model()
    with pytest.raises((ValueError, TypeError), match=words):
        call(model, run_model(model, TOKENS))
