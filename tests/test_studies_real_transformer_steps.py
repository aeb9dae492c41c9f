"""What steps do to the energy of their own head: every head written out, stages from the run."""

import numpy as np
import pytest
import torch
from minilm_model import installed_model, installed_traces

from compendium.c14_real_transformer import steps
from spinformer.language.encoder import run_model
from spinformer.language.text import TEXTS
from spinformer.language.untrained import example_model

TOKENS = torch.tensor([[2, 5, 6, 7, 3], [2, 9, 9, 6, 3]])


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


@pytest.mark.claim("A14a")
def test_changes_are_those_of_steps_written_out():
    """Whole, common and specific part of one head after the other, added to the state itself."""
    small = example_model(seed=3)
    for model, trace in (
        (installed_model(), installed_traces()[1]),
        (small, run_model(small, TOKENS)[1]),
    ):
        found = steps.head_steps(model, trace)
        inputs = trace.inputs.numpy()
        for head in range(trace.queries.shape[1]):
            step = written(model, trace, head)
            common = step.mean(1, keepdims=True)
            before = own_energy(model, trace, head, inputs)
            for name, part in (("whole", step), ("common", common), ("specific", step - common)):
                after = own_energy(model, trace, head, inputs + part)
                expected = (after - before).mean(1)
                np.testing.assert_allclose(getattr(found, name)[:, head], expected, atol=1e-9)


@pytest.mark.claim("A14b")
def test_stages_are_the_states_of_the_models_run():
    """The model's own states after each stage, and the energy of its heads written out."""
    small = example_model(seed=3)
    for model, trace in (
        (installed_model(), installed_traces()[4]),
        (small, run_model(small, TOKENS)[0]),
    ):
        heads = range(trace.queries.shape[1])
        states = (trace.inputs, trace.residual, trace.normalized, trace.outputs)
        start, *after = (
            np.mean([own_energy(model, trace, h, x.numpy()) for h in heads], axis=(0, 2))
            for x in states
        )
        np.testing.assert_allclose(
            steps.stage_changes(model, trace), np.array(after) - start, atol=1e-9
        )


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
