"""Steps of heads and their energies: every head, stage, cosine and null written out."""

import numpy as np
import pytest
import torch
from minilm_model import installed_model, installed_traces

from compendium.c14_real_transformer import alignment, energies, steps
from spinformer.language.encoder import project, run_model
from spinformer.language.heads import overlap_energy
from spinformer.language.text import TEXTS, sample_texts, text_windows
from spinformer.language.untrained import example_model

TOKENS = torch.tensor([[2, 5, 6, 7, 3], [2, 9, 9, 6, 3]])


def two_models(layer):
    """The pretrained model with a layer of its run, and a small one with its last."""
    small = example_model(seed=3)
    return (installed_model(), installed_traces()[layer]), (small, run_model(small, TOKENS)[1])


def own_energy(model, trace, head, states):
    """U of one head at hidden states (B, N, D), by NumPy, from the weights: (B, N)."""
    name = f"encoder.layer.{trace.layer}.attention.self"
    width = trace.queries.shape[-1]
    rows = slice(head * width, (head + 1) * width)
    weight, bias, key, key_bias = (
        model.weights[f"{name}.{part}"].numpy()[rows]
        for part in ("query.weight", "query.bias", "key.weight", "key.bias")
    )
    keys = trace.inputs.numpy() @ key.T + key_bias
    scores = (states @ weight.T + bias) @ (keys - keys.mean(1, keepdims=True)).swapaxes(1, 2)
    beta = width**-0.5
    return -np.log(np.exp(beta * scores).mean(-1)) / beta


def written(model, trace, head):
    """What one head writes into the state, (B, N, D)."""
    width = trace.queries.shape[-1]
    rows = slice(head * width, (head + 1) * width)
    weights = torch.softmax(trace.beta * trace.queries[:, head] @ trace.keys[:, head].mT, -1)
    output = model.weights[f"encoder.layer.{trace.layer}.attention.output.dense.weight"]
    return (weights @ trace.values[:, head] @ output[:, rows].mT).numpy()


def per_head(model, trace):
    """Centered steps W_O^h o_h and descents W_Q^hᵀ p_h of every head: two arrays (B, H, N, D)."""
    name = f"encoder.layer.{trace.layer}.attention"
    output = model.weights[f"{name}.output.dense.weight"].numpy()
    query = model.weights[f"{name}.self.query.weight"].numpy()
    heads, width = trace.queries.shape[1], trace.queries.shape[-1]
    steps, descents = [], []
    for head in range(heads):
        rows = slice(head * width, (head + 1) * width)
        logits = trace.beta * trace.queries[:, head] @ trace.keys[:, head].mT
        weights = torch.softmax(logits, -1).numpy()
        for found, values, matrix in (
            (steps, trace.values, output[:, rows].T),
            (descents, trace.keys, query[rows]),
        ):
            part = weights @ values[:, head].numpy() @ matrix
            found.append(part - part.mean(1, keepdims=True))
    return np.stack(steps, 1), np.stack(descents, 1)


def haar(generator):
    """A uniform rotation of four dimensions: QR with the signs of the diagonal of R taken out."""
    orthogonal, triangle = np.linalg.qr(generator.standard_normal((4, 4)))
    return orthogonal * np.sign(np.diag(triangle))


def cosine(one, other):
    return (one * other).sum() / np.linalg.norm(one) / np.linalg.norm(other)


def layer_energy(model, trace, states):
    """Σ_h U_h of a layer at hidden states (B, N, D), torch, for autograd: (B, N)."""
    queries = project(model, trace.layer, "query", states=states)
    return overlap_energy(queries, keys=trace.keys, beta=trace.beta).sum(1)


@pytest.mark.claim("A14a")
def test_changes_are_those_of_steps_written_out():
    """Whole, common and specific part of one head after the other, added to the state itself."""
    for model, trace in two_models(1):
        found = steps.head_steps(model, trace)
        inputs = trace.inputs.numpy()
        for head in range(trace.queries.shape[1]):
            step = written(model, trace, head)
            common = step.mean(1, keepdims=True)
            before = own_energy(model, trace, head, inputs)
            for name, part in (("whole", step), ("common", common), ("specific", step - common)):
                after = own_energy(model, trace, head, inputs + part)
                expected = (after - before).mean(1)
                np.testing.assert_allclose(found[name][:, head], expected, atol=1e-9)


@pytest.mark.claim("A14b")
def test_stages_are_the_states_of_the_models_run():
    """The model's own states after each stage, and the energy of its heads written out."""
    for model, trace in two_models(4):
        heads = range(trace.queries.shape[1])
        states = (trace.inputs, trace.residual, trace.normalized, trace.outputs)
        start, *after = (
            np.mean([own_energy(model, trace, h, x.numpy()) for h in heads], axis=(0, 2))
            for x in states
        )
        np.testing.assert_allclose(
            steps.stage_changes(model, trace), np.array(after) - start, atol=1e-9
        )


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


def test_the_step_of_a_tied_head_with_centred_keys_goes_down():
    """And with another mean key it need not: the example for the hand of chapter 14."""
    heights = []
    for shift in (0.0, -1.0):
        keys = np.array([1.0, -1.0]) + shift
        weights = np.exp(keys) / np.exp(keys).sum()
        query = 1.0 + weights @ keys
        heights.append(-np.log(np.exp(query * (keys - keys.mean())).mean()))
    assert heights[0] < -np.log(np.cosh(1.0)) < heights[1]
    assert heights[1] == pytest.approx(-0.266, abs=5e-4)


def test_turned_heads_have_the_spread_of_heads_turned_by_hand():
    """Two independent ways to draw: the same mean and deviation over 300 draws."""
    model = example_model(seed=3)
    trace = run_model(model, TOKENS)[1]
    drawn = np.array([steps.turned_steps(model, trace, seed=seed)[0] for seed in range(300)])
    generator, by_hand = np.random.default_rng(9), []
    inputs = trace.inputs.numpy()
    name = "encoder.layer.1.attention.output.dense.weight"
    output = model.weights[name].numpy().reshape(8, 2, 4)
    weights = torch.softmax(trace.beta * trace.queries @ trace.keys.mT, -1)
    returned = (weights @ trace.values).numpy()
    before = [own_energy(model, trace, head, inputs) for head in range(2)]
    for _ in range(300):
        changes = []
        for head, other in enumerate(generator.permutation(2)):
            orthogonal, triangle = np.linalg.qr(generator.standard_normal((4, 4)))
            turn = orthogonal * np.sign(np.diag(triangle))
            after = own_energy(
                model, trace, head, inputs + returned[:, head] @ turn @ output[:, other].T
            )
            changes.append((after - before[head]).mean())
        by_hand.append(changes)
    error = np.hypot(drawn.std(0), np.std(by_hand, axis=0)) / 300**0.5
    assert (abs(drawn.mean(0) - np.mean(by_hand, axis=0)) < 4 * error).all()
    np.testing.assert_allclose(drawn.std(0), np.std(by_hand, axis=0), rtol=0.2)


def test_step_alignment_is_the_cosine_of_step_and_descent():
    """Whole step (of the model's run) and autograd's gradient; heads and pairs one by one."""
    for model, trace in two_models(1):
        found = alignment.step_alignment(model, trace, draws=0)
        states = trace.inputs.clone().requires_grad_(True)
        total = layer_energy(model, trace, states).sum()
        (gradient,) = torch.autograd.grad(total, states)
        step, down = (x - x.mean(1, keepdim=True) for x in (trace.attended, -gradient))
        steps, descents = per_head(model, trace)
        for b in range(2):
            expected = cosine(step[b].numpy(), down[b].numpy())
            assert found.layer[b] == pytest.approx(expected, abs=1e-9)
            for h in range(steps.shape[1]):
                alone = cosine(steps[b, h], descents[b, h])
                assert found.heads[b, h] == pytest.approx(alone, abs=1e-9)
            lengths = np.linalg.norm(steps[b].sum(0)) * np.linalg.norm(descents[b].sum(0))
            pairs = np.einsum("htD,gtD->hg", steps[b], descents[b]) / lengths
            np.testing.assert_allclose(found.pairs[b], pairs, atol=1e-10)
        assert found.pooled == pytest.approx(cosine(step.numpy(), down.numpy()), abs=1e-9)


def test_aligned_steps_of_the_model_lower_the_energy_of_the_layer():
    """All of them, at any length: U is concave in the hidden state."""
    model, shares = installed_model(), []
    for trace in installed_traces():
        states = trace.inputs.clone().requires_grad_(True)
        before = layer_energy(model, trace, states)
        (gradient,) = torch.autograd.grad(before.sum(), states)
        aligned = (trace.attended * gradient).sum(-1) < 0
        shares.append(float(aligned.double().mean()))
        for length in (0.1, 1.0, 10.0):
            after = layer_energy(model, trace, trace.inputs + length * trace.attended)
            assert bool((after < before)[aligned].all())
    assert 0.3 < np.mean(shares) < 0.9


def test_null_turns_and_permutes_the_heads():
    """Its cosines scatter around 0 as those of turned heads do that are written out."""
    model = example_model(seed=3)
    trace = run_model(model, TOKENS)[1]
    found = alignment.step_alignment(model, trace, draws=400, seed=5)
    _, descents = per_head(model, trace)
    down = descents.sum(1)
    name = "encoder.layer.1.attention.output.dense.weight"
    output = model.weights[name].numpy().reshape(8, 2, 4)
    logits = trace.beta * trace.queries @ trace.keys.mT
    returned = (torch.softmax(logits, -1) @ trace.values).numpy()
    generator, drawn = np.random.default_rng(1), []
    for _ in range(400):
        step = 0.0
        for head, other in enumerate(generator.permutation(2)):
            turn = haar(generator)
            step = step + returned[:, head] @ turn @ output[:, other].T
        drawn.append(cosine(step - step.mean(1, keepdims=True), down))
    assert abs(found.null.mean()) < 4 * found.null.std() / 20
    assert found.null.std() == pytest.approx(np.std(drawn), rel=0.15)


def test_weight_alignment_is_a_cosine_of_matrices():
    """Against W_O W_V and W_QᵀW_K multiplied out; tied matrices have cosine 1."""
    model = example_model(seed=2)
    found = alignment.weight_alignment(model, 1)
    name = "encoder.layer.1.attention"
    query, key, value = (
        model.weights[f"{name}.self.{w}.weight"].numpy().reshape(2, 4, 8)
        for w in ("query", "key", "value")
    )
    output = model.weights[f"{name}.output.dense.weight"].numpy().reshape(8, 2, 4)
    for h in range(2):
        for g in range(2):
            expected = cosine(output[:, h] @ value[h], query[g].T @ key[g])
            assert found[h, g] == pytest.approx(expected, abs=1e-12)
    tied = dict(model.weights)
    tied[f"{name}.self.value.weight"] = tied[f"{name}.self.key.weight"]
    tied[f"{name}.output.dense.weight"] = tied[f"{name}.self.query.weight"].mT
    for tensor in ("value", "key"):
        tied[f"{name}.self.{tensor}.bias"] = torch.zeros(8, dtype=torch.float64)
    tied_model = type(model)(weights=tied, architecture=model.architecture, tokenizer=None)
    np.testing.assert_allclose(alignment.weight_alignment(tied_model, 1).diagonal(), 1.0)
    step = alignment.step_alignment(tied_model, run_model(tied_model, TOKENS)[1], draws=0)
    np.testing.assert_allclose(step.layer, 1.0)


def test_query_energy_by_hand_and_turned():
    """The mean of `overlap_energy`; turned, as with rotations drawn here."""
    model = example_model()
    trace = run_model(model, TOKENS)[0]
    expected = overlap_energy(trace.queries, keys=trace.keys, beta=0.5).mean((0, 2))
    np.testing.assert_allclose(energies.query_energy(trace), expected, rtol=1e-12)
    drawn = np.array([energies.query_energy(trace, turned=seed) for seed in range(300)])
    generator = np.random.default_rng(7)
    by_hand = []
    for _ in range(300):
        turn = torch.from_numpy(haar(generator))
        turned = overlap_energy(trace.queries @ turn, keys=trace.keys, beta=0.5)
        by_hand.append(turned.mean((0, 2)).numpy())
    error = np.hypot(drawn.std(0), np.std(by_hand, axis=0)) / 300**0.5
    assert (abs(drawn.mean(0) - np.mean(by_hand, axis=0)) < 4 * error).all()


@pytest.mark.nightly
def test_stored_rows_computed_anew():
    model = installed_model()
    windows = steps.windows_of(model, [TEXTS[3]], 32)
    for rows, names, read in (
        (steps.step_rows(model, windows), steps.PARTS, steps.read_steps),
        (steps.stage_rows(model, windows), steps.STAGES_OF_U, steps.read_stages),
    ):
        for name in names:
            found = [row[name] for row in rows]
            np.testing.assert_allclose(found, read(name)[0, 3].ravel(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("length", range(len(steps.LENGTHS)))
def test_common_parts_go_down_and_specific_ones_up_at_every_length(length):
    """In most heads, counted by Student's interval over the seven texts."""
    down, up = {}, {}
    for part in steps.PARTS:
        changes = steps.read_steps(part)[length]
        error = 2.447 * changes.std(0, ddof=1) / 7**0.5
        down[part] = int((changes.mean(0) + error < 0).sum())
        up[part] = int((changes.mean(0) - error > 0).sum())
    assert down["common"] > 48 > 5 > up["common"]
    assert up["specific"] > 44 > 14 > down["specific"]
    assert 36 < down["whole"] < 50
    assert up["whole"] < 12
    assert (steps.read_stages("residual")[length].mean(0) < 0).sum() == 5


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
