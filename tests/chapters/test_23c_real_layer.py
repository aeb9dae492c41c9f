"""A layer's heads as spins: every term by other means, fits by another library, a unit again."""

from itertools import product

import numpy as np
import pytest
import torch
from minilm_model import installed_model
from open_cells import run_open_cells
from sklearn.linear_model import Ridge

from compendium.c23_anatomy.study import dissect
from compendium.c23c_real_layer import settings, study
from spinformer.language.text import sample_texts, text_windows
from spinformer.language.traces import trace_layers
from spinformer.language.untrained import example_model

SMALL = example_model(seed=4)
MODEL = SMALL.model
TOKENS = torch.tensor([[2, 5, 9, 7, 11, 3], [2, 8, 8, 6, 12, 3]])
WORDS = {"one": "a b c d c a k l", "two": "b d e a i j a b", "three": "c a f b n h c d"}


def weight(name):
    return MODEL.get_parameter(f"encoder.layer.1.attention.{name}.weight")


def test_terms_add_up_to_the_attention():
    """Own value times its weight and the directed rest are the output; the others by hand."""
    trace = trace_layers(MODEL, TOKENS)[1]
    terms = study.mixing_terms(MODEL, trace)
    weights = torch.softmax(trace.beta * trace.queries @ trace.keys.mT, -1)
    own = weights.diagonal(dim1=-2, dim2=-1).unsqueeze(-1) * terms["own"]
    bias = MODEL.encoder.layer[1].attention.output.dense.bias
    torch.testing.assert_close((own + terms["directed"]).sum(1) + bias, trace.attended)
    b = 1
    h = 1
    i = 2
    matrix = weight("output.dense")[:, 4 * h : 4 * h + 4]
    pull = (weights[b, h, i] + weights[b, h, :, i]) / 2
    pull[i] = 0.0
    want = matrix @ (pull @ trace.values[b, h])
    torch.testing.assert_close(terms["symmetrized"][b, h, i], want)
    torch.testing.assert_close(terms["balanced"][b, h, i], want / pull.sum())
    torch.testing.assert_close(terms["uniform"][b, h, i], matrix @ trace.values[b, h].mean(0))
    # With two heads the other one is the other one.
    swapped = (weights + weights.mT).flip(1) / 2 * (1 - torch.eye(6)) @ trace.values
    want = torch.einsum("bhnd,ohd->bhno", swapped, weight("output.dense").view(8, 2, 4))
    torch.testing.assert_close(terms["other head"], want)
    assert not torch.allclose(terms["shuffled"], terms["symmetrized"])


def test_the_open_cells_mix_as_the_study_does():
    """Symmetrized, balanced and transposed weights; the shuffled ones keep each row's sum."""
    cells = run_open_cells("23c_real_layer")
    directed = torch.tensor(cells["directed"])[None, None]
    values = torch.tensor(cells["head_values"])[None, None]
    mixed = study.mixtures(values, directed, torch.arange(1))
    pairs = (
        ("symmetrized", "symmetrized"),
        ("balanced", "balanced"),
        ("transposed alone", "transposed"),
    )
    for name, part in pairs:
        np.testing.assert_allclose(cells["candidates"][name], mixed[part][0, 0], atol=1e-12)
    received = cells["directed"].sum(axis=0)
    np.testing.assert_allclose(cells["shuffled_rows"].sum(axis=1), received, atol=1e-12)
    # The null of the study, with other draws, predicts as much.
    target = cells["directed"] @ cells["head_values"]
    by_study = cells["fraction_explained"](mixed["balanced shuffled"][0, 0].numpy(), target)
    assert cells["null"]["balanced, shuffled"] == pytest.approx(by_study, abs=0.03)
    assert cells["null"]["balanced"] == pytest.approx(by_study, abs=0.05)


def test_spins_and_response_of_a_head():
    """The saddle point by `dissect`, the response by autograd at fixed correlations."""
    trace = trace_layers(MODEL, TOKENS)[1]
    parts = study.layer_parts(MODEL, trace, strength=0.7)
    weights = torch.softmax(trace.beta * trace.queries @ trace.keys.mT, -1)
    correlations = []
    for h in range(2):
        size = trace.values[:, h].square().sum(-1).mean(-1).sqrt()[:, None, None]
        found = dissect(
            trace.values[:, h] / size,
            bilinear=torch.zeros(4, 4, dtype=torch.float64),
            beta=1.0,
            couplings=0.7 * weights[:, h],
        )
        correlations.append(found.correlation)
        matrix = weight("output.dense")[:, 4 * h : 4 * h + 4].T
        near = {"rtol": 1e-6, "atol": 1e-7}
        # ⟨u⟩ of a free spin in the residual's field, and what its length says of τ.
        gain = (found.residual * size / trace.values[:, h]).mean(-1)
        torch.testing.assert_close(parts.gain[:, h], gain, **near)
        share = 1 - gain / (1 - found.spins.square().sum(-1))
        torch.testing.assert_close(parts.onsager[:, h], share, **near)
        terms = {
            "residual": found.residual,
            "mixing": found.first_step + found.higher_orders,
            "onsager": share.unsqueeze(-1) * found.spins,
        }
        for name, want in terms.items():
            torch.testing.assert_close(parts.terms[name][:, h], size * want @ matrix, **near)
    x = trace.inputs.clone().requires_grad_()
    q = (
        (x @ weight("self.query").T + MODEL.encoder.layer[1].attention.self.query.bias)
        .unflatten(-1, (2, 4))
        .transpose(1, 2)
    )
    k = (
        (x @ weight("self.key").T + MODEL.encoder.layer[1].attention.self.key.bias)
        .unflatten(-1, (2, 4))
        .transpose(1, 2)
    )
    couplings = 0.7 * torch.softmax(q @ k.mT / 2, -1)
    (want,) = torch.autograd.grad((couplings * torch.stack(correlations, 1)).sum(), x)
    torch.testing.assert_close(parts.responses["response"], want, rtol=1e-6, atol=1e-7)
    assert not torch.allclose(parts.responses["other head"], want)
    moved = parts.responses["shuffled"]
    torch.testing.assert_close(moved.sum(1), parts.responses["response"].sum(1))
    assert not torch.allclose(moved, parts.responses["response"])


def test_fits_by_another_library():
    """Ridge regression of scikit-learn, on the same splits."""
    traces = [trace_layers(MODEL, text_windows(SMALL, words, 8)[:1])[1] for words in WORDS.values()]
    found = [(trace, study.layer_parts(MODEL, trace)) for trace in traces]
    ridge = study.feed_forward_scores(found)
    inputs = [trace.normalized.flatten(0, 1).numpy() for trace, _ in found]
    responses = [parts.responses["response"].flatten(0, 1).numpy() for _, parts in found]
    both = [np.concatenate(pair, 1) for pair in zip(inputs, responses, strict=True)]
    outputs = [trace.fed.flatten(0, 1).numpy() for trace, _ in found]
    differ = 0
    for (name, data), unseen in product((("own", inputs), ("response", both)), range(3)):
        # The ridge is chosen on the next text, the fit is that of the one after it.
        tune = (unseen + 1) % 3
        train = (unseen + 2) % 3
        center = data[train].mean(0)
        width = data[train].std(0, ddof=1)
        mean = outputs[train].mean(0)
        best = []
        for strength in study.RIDGES:
            fit = Ridge(alpha=strength * len(data[train]), fit_intercept=False)
            fit.fit((data[train] - center) / width, outputs[train] - mean)
            shares = []
            for n in (tune, unseen):
                wrong = outputs[n] - mean - fit.predict((data[n] - center) / width)
                shares.append(1 - (wrong**2).sum() / ((outputs[n] - mean) ** 2).sum())
            best.append(shares)
        assert ridge[name][unseen] == pytest.approx(max(best)[1], abs=1e-8)
        differ += max(best)[1] < max(share[1] for share in best) - 1e-6
    # Choosing on the unseen text itself would have been noticed.
    assert differ
    trace, parts = found[0]
    spread = trace.residual.std(-1, unbiased=False).flatten().numpy()
    gain = parts.gain.log().mean(1).flatten().numpy()
    want = np.corrcoef(gain, -np.log(spread))[0, 1]
    assert study.normalization_scores(found)["gain"][0] == pytest.approx(want, abs=1e-9)


def test_shuffled_rows_keep_their_entries_and_the_diagonal():
    weights = torch.arange(2 * 5 * 5.0, dtype=torch.float64).view(2, 5, 5)
    moved = study.shuffled_rows(weights)
    torch.testing.assert_close(moved.sort(-1).values, weights)
    assert torch.equal(moved.diagonal(0, 1, 2), weights.diagonal(0, 1, 2))
    others = ~torch.eye(5, dtype=torch.bool)
    assert (moved != weights)[:, others].double().mean() > 0.5
    # Windows and rows get orders of their own.
    places = moved - weights[..., :1]
    assert not torch.equal(places[0], places[1])
    assert not torch.equal(places[0, 0], places[0, 1])


def test_the_tokens_left_out_are_those_that_receive_most():
    trace = trace_layers(MODEL, TOKENS)[1]
    terms = study.mixing_terms(MODEL, trace)
    received = torch.softmax(trace.beta * trace.queries @ trace.keys.mT, -1).sum((1, 2))
    kept, goals = study.without_sinks(terms, trace, 2)
    for b, row in enumerate(received.tolist()):
        rest = [i for i in range(6) if row[i] < sorted(row)[-2]]
        torch.testing.assert_close(kept["own"][b], terms["own"][b][:, rest])
        torch.testing.assert_close(goals[b], trace.attended[b, rest])


def looks_of(trace):
    """Attention (B, H, N, N), its symmetric part without the diagonal, and values, in NumPy."""
    q = trace.queries.numpy()
    k = trace.keys.numpy()
    v = trace.values.numpy()
    scores = np.exp(q @ k.swapaxes(-1, -2) / 32**0.5)
    weights = scores / scores.sum(-1, keepdims=True)
    return weights, 0.5 * (weights + weights.swapaxes(-1, -2)) * (1 - np.eye(64)), v


def written_by(model, layer, parts):
    """Of heads' parts (2, B, 12, N, 32), what the layer's output makes, (24, tokens, 384)."""
    output = model.encoder.layer[layer].attention.output.dense.weight.numpy()
    mapped = np.einsum("pbhnd,ohd->phbno", parts, output.reshape(384, 12, 32))
    return mapped.reshape(24, -1, 384)


def share_by_hand(texts, goals):
    """R² on the first of the texts (24, tokens, 384) by least squares on the others."""
    shift = np.concatenate(texts[1:], 1).mean(1, keepdims=True)
    centre = np.concatenate(goals[1:]).mean(0)
    x = [(text - shift).reshape(24, -1) for text in texts]
    y = [(goal - centre).ravel() for goal in goals]
    square = sum(one @ one.T for one in x[1:])
    along = sum(one @ goal for one, goal in zip(x[1:], y[1:], strict=True))
    wrong = y[0] - np.linalg.solve(square, along) @ x[0]
    return 1 - (wrong**2).sum() / (y[0] ** 2).sum()


@pytest.mark.claim("B9c")
def test_a_unit_of_the_table_by_other_means():
    """Layer 0 of the model again, in NumPy, without the package's terms, which give the same."""
    encoder = installed_model()
    model = encoder.model
    table = study.layers_table.read()
    features = []
    goals = []
    terms = []
    targets = []
    for words in sample_texts().values():
        trace = trace_layers(model, text_windows(encoder, words, 64)[:4], layers=[0])[0]
        terms.append(study.mixing_terms(model, trace))
        _, between, values = looks_of(trace)
        features.append(written_by(model, 0, np.stack([values, between @ values])))
        targets.append(trace.attended)
        goals.append(trace.attended.numpy().reshape(-1, 384))
    unseen = 2
    order = [unseen, *(n for n in range(7) if n != unseen)]
    score = share_by_hand([features[n] for n in order], [goals[n] for n in order])
    unit = {"layer": 0, "target": "attention", "part": "symmetrized"}
    here = np.all([table[name] == value for name, value in unit.items()], axis=0)
    assert table["score"][here][unseen] == pytest.approx(score, abs=1e-5)
    sets = {"symmetrized": ("own", "symmetrized")}
    again = study.attention_scores(terms, targets=targets, sets=sets)["symmetrized"]
    assert again[unseen] == pytest.approx(score, abs=1e-8)


@pytest.mark.claim("B9d")
def test_the_sink_by_other_means():
    """Layer 2 of the model in NumPy; weights that are permuted predict less than a third."""
    encoder = installed_model()
    model = encoder.model
    texts = [text_windows(encoder, words, 64)[:1] for words in [*sample_texts().values()][:3]]
    traces = [trace_layers(model, tokens)[2] for tokens in texts]

    def share(change, left_out):
        features = []
        goals = []
        for trace in traces:
            weights, between, values = looks_of(trace)
            keep = np.argsort(weights.sum((0, 1, 2)))[: 64 - left_out]
            directed = weights * (1 - np.eye(64))
            parts = np.stack([values, change(between, directed) @ values])[..., keep, :]
            features.append(written_by(model, 2, parts))
            goals.append(trace.attended[0].numpy()[keep])
        return share_by_hand(features, goals)

    def balanced(weights):
        return weights / weights.sum(-1, keepdims=True)

    def shuffled(_, directed):
        return balanced(directed + rng.permuted(directed.swapaxes(-1, -2), axis=-1))

    rng = np.random.default_rng(0)
    order = rng.permutation(64)
    assert share(lambda w, _: w, 0) < 0.4
    assert share(lambda w, _: w, 1) > 0.5
    kept = share(lambda w, _: balanced(w), 0)
    assert kept > 0.6
    assert share(lambda w, _: balanced(w)[..., order, :][..., order], 0) < 0.35
    # P is half of the balanced weights, and predicts as much beside any other Pᵀ.
    assert share(shuffled, 0) > kept - 0.05
    assert share(lambda _, p: balanced(p.swapaxes(-1, -2)), 0) < 0.35


@pytest.mark.claim("B9e")
def test_the_symmetry_of_scores_by_other_means():
    """Two layers in NumPy, pair by pair; symmetric and skew matrices and noise, known."""
    encoder = installed_model()
    words = [*sample_texts().values()]
    symmetric = study.score_symmetry(length=64, windows=slice(1))
    for layer in (1, 4):
        found = []
        for text in words[:2]:
            trace = trace_layers(encoder.model, text_windows(encoder, text, 64)[:1])[layer]
            scores = (trace.queries @ trace.keys.mT).numpy()[0] / 32**0.5
            scores = scores - scores.mean(-1, keepdims=True)
            scores = scores - scores.mean(-2, keepdims=True)
            above = np.triu_indices(64, 1)
            pairs = [np.stack([s[above], s.T[above]], 1) for s in scores]
            both = [np.concatenate([p, p[:, ::-1]]) for p in pairs]
            found.append(np.mean([np.corrcoef(p.T)[0, 1] for p in both]))
        assert symmetric["own"][layer, :2] == pytest.approx(found, abs=1e-9)
    rng = torch.Generator().manual_seed(0)
    draw = torch.randn(40, 40, generator=rng, dtype=torch.float64)
    for scores, wanted in ((draw + draw.T, 1.0), (draw - draw.T, -1.0), (draw, 0.0)):
        # A constant in each row and a popularity of each column hide nothing and add nothing.
        shifted = scores + 5 * draw[:1] + 3 * draw[:, :1]
        centred = study.centred_twice(shifted)
        found = float(study.pair_correlation(centred, centred.mT))
        assert found == pytest.approx(wanted, abs=0.06 if wanted == 0 else 1e-9)


def test_lines_of_shuffled_weights_and_of_transposes_are_differences_by_layer(monkeypatch):
    """From the first tokens of the texts, or from as many that follow."""
    asked = []
    texts = np.array([-0.2, -0.1, 0.0, 0.1, 0.2])
    names = list(settings.MIXED)

    def mixing(*, length, windows, left_out, skipped):
        asked.append((length, windows, skipped))
        scores = np.zeros((len(names), 6, 5))
        scores[names.index("balanced")] = 0.7 + texts + 0.01 * np.arange(6)[:, None]
        scores[names.index("balanced shuffled")] = 0.4 + texts
        return {
            count: scores - 0.001 * count * (np.array(names) == "balanced")[:, None, None]
            for count in left_out
        }

    def symmetry(*, length, windows):
        asked.append((length, windows.stop - windows.start, windows.start))
        layer = 0.01 * np.arange(6)[:, None]
        return {
            "own": 0.5 + texts + layer,
            "other head": 0.2 + texts,
            "relabelled": 0.1 + 0 * texts + 0 * layer,
        }

    monkeypatch.setattr(settings, "mixing_scores", mixing)
    monkeypatch.setattr(settings, "score_symmetry", symmetry)
    for place in settings.PLACES:
        for row in settings.settings_b9d.rows(64, place=place):
            wanted = 0.3 + 0.01 * row["layer"] - 0.001 * row["left_out"] - 0.1
            assert [row[name] for name in ("value", "low", "high")] == pytest.approx([wanted] * 3)
            assert row["runs"] == 5
        rows = settings.settings_b9e.rows(64, place=place)
        for row in rows:
            away = 0.3 if row["null"] == "other head" else 0.4
            assert row["value"] == pytest.approx(away + 0.01 * row["layer"])
        assert len({(row["null"], row["layer"]) for row in rows}) == len(rows) == 12
    windows = settings.TOKENS // 64
    firsts = [0, 0, windows, windows]
    assert asked == [(64, windows, first) for first in firsts]
