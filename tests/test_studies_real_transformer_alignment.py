"""Steps against the descent of their own energy: every cosine and the null, written out."""

import numpy as np
import pytest
import torch
from minilm_model import installed_model, installed_traces

from compendium.c14_real_transformer import alignment, energies, untrained
from spinformer.language.encoder import run_model
from spinformer.language.heads import random_rotations
from spinformer.language.untrained import example_model

TOKENS = torch.tensor([[2, 5, 6, 7, 3], [2, 9, 9, 6, 3]])


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


def test_step_alignment_is_the_cosine_of_step_and_descent():
    """Whole step (of the model's run) and autograd's gradient; heads and pairs one by one."""
    small = example_model(seed=3)
    for model, trace in (
        (installed_model(), installed_traces()[1]),
        (small, run_model(small, TOKENS)[1]),
    ):
        found = alignment.step_alignment(model, trace, draws=0)
        states = trace.inputs.clone().requires_grad_(True)
        total = energies.layer_overlap_energy(model, trace, states=states).sum()
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


def test_first_layer_descends_and_most_of_its_heads_oppose_their_own_descent():
    """Against the null of the same model; the two verdicts of the chapter, on other windows."""
    model, trace = installed_model(), installed_traces()[0]
    found = alignment.step_alignment(model, trace)
    score = (found.pooled - found.null.mean()) / found.null.std(ddof=1)
    assert score > 10
    assert (found.heads.mean(0) < -0.05).sum() >= 8
    assert found.heads[:, 2].min() > 0.2


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
    expected = energies.overlap_energy(trace.queries, keys=trace.keys, beta=0.5).mean((0, 2))
    np.testing.assert_allclose(energies.query_energy(trace), expected, rtol=1e-12)
    drawn = np.array([energies.query_energy(trace, turned=seed) for seed in range(300)])
    generator = np.random.default_rng(7)
    by_hand = []
    for _ in range(300):
        turn = torch.from_numpy(haar(generator))
        turned = energies.overlap_energy(trace.queries @ turn, keys=trace.keys, beta=0.5)
        by_hand.append(turned.mean((0, 2)).numpy())
    error = np.hypot(drawn.std(0), np.std(by_hand, axis=0)) / 300**0.5
    assert (abs(drawn.mean(0) - np.mean(by_hand, axis=0)) < 4 * error).all()


def test_stored_depths_of_untrained_weights():
    """One draw of the weights that training starts from, computed anew."""
    stored = untrained.UNTRAINED.read()
    rows = untrained.untrained_rows(installed_model(), "initial", seed=3)
    chosen = (stored["kind"] == "initial") & (stored["seed"] == 3)
    found = [row["energy"] for row in rows]
    np.testing.assert_allclose(stored["energy"][chosen], found, rtol=1e-4)


def test_bad_input_is_refused():
    model = example_model()
    trace = run_model(model, TOKENS)[0]
    with pytest.raises(ValueError, match="draws"):
        alignment.step_alignment(model, trace, draws=-1)
    with pytest.raises(ValueError, match="like"):
        random_rotations(torch.zeros(2, 3, 4), seed=0)
    with pytest.raises(ValueError, match="layer"):
        alignment.weight_alignment(model, 2)
