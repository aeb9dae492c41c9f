"""The map of soft tokens against one written here in NumPy, closed forms, and dense derivatives."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from known_generators import Toy, ring
from scipy.special import softmax
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from transformers import PreTrainedTokenizerFast

from spinformer.core.regimes import Regime
from spinformer.core.solve import NotConverged
from spinformer.language import (
    checkpoints,
    soft_map_fixed_points,
    soft_map_greedy,
    soft_map_lyapunov,
)
from spinformer.language.checkpoints import Checkpoint
from spinformer.language.soft_map import SoftTokenMap, Thresholds
from spinformer.language.untrained import LAYOUTS, example_causal_model

PREFIX = [3, 4]


def plain_step(model, table, window, *, prefix=(), beta):
    """The next token after a window (T, D), from the logits that transformers gives."""
    inputs = np.concatenate([table[list(prefix)], window]) if len(prefix) else window
    with torch.no_grad():
        logits = model(inputs_embeds=torch.from_numpy(inputs)[None]).logits[0, -1].numpy()
    if np.isinf(beta):
        return table[logits.argmax()]
    return softmax(beta * logits) @ table


def plain_orbit(model, table, window, *, steps, prefix=(), beta):
    orbit = list(window)
    for _ in range(steps):
        orbit.append(
            plain_step(model, table, np.array(orbit[-len(window) :]), prefix=prefix, beta=beta)
        )
    return np.array(orbit[len(window) :])


def dense_jacobian(model, table, window, *, prefix=(), beta):
    """Derivative of the map of windows, column by column, by central differences.

    The norms of transformers compute in single precision, so that the step must not be too small.
    """
    flat = window.ravel()
    columns = []
    for k in range(flat.size):
        ends = []
        for sign in (1, -1):
            moved = flat.copy()
            moved[k] += sign * 1e-3
            moved = moved.reshape(window.shape)
            token = plain_step(model, table, moved, prefix=prefix, beta=beta)
            ends.append(np.concatenate([moved[1:], token[None]]).ravel())
        columns.append((ends[0] - ends[1]) / 2e-3)
    return np.array(columns).T


def words_of(model):
    """The embeddings as the model reads them."""
    layer = model.get_input_embeddings()
    return layer(torch.arange(layer.num_embeddings)).numpy()


def windows_of(soft, *shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return soft.embed(torch.randint(soft.vocabulary, shape, generator=generator))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_steps_are_those_of_the_formula(layout):
    model = example_causal_model(layout)
    table = words_of(model)
    for prefix in ((), PREFIX):
        soft = SoftTokenMap(model, window=3, prefix=list(prefix) or None, beta=0.2)
        starts = windows_of(soft, 2, 1, 3)
        betas = torch.tensor([0.05, 0.3, torch.inf])
        tokens, windows = soft.trajectory(starts, steps=4, beta=betas)
        assert tokens.shape == (2, 3, 4, 16)
        for k, b in np.ndindex(2, 3):
            expected = plain_orbit(
                model, table, starts[k, 0].numpy(), steps=4, prefix=prefix, beta=float(betas[b])
            )
            np.testing.assert_allclose(tokens[k, b], expected, atol=1e-10)
        torch.testing.assert_close(windows, tokens[:, :, 1:])
        moved, token = soft.step(starts, beta=betas)
        torch.testing.assert_close(token, tokens[:, :, 0])
        torch.testing.assert_close(moved[..., :2, :], starts.expand(2, 3, -1, -1)[..., 1:, :])
        # Words are read as the model itself reads them by their numbers.
        numbers = torch.tensor([5, 9, 2])
        logits = model(input_ids=torch.tensor([[*prefix, 5, 9, 2]])).logits[0, -1]
        found = soft.next_token_distribution(soft.embed(numbers)[None], beta=0.7)[0]
        torch.testing.assert_close(found, torch.softmax(0.7 * logits, -1))


def test_the_nucleus_is_that_of_transformers():
    warper = pytest.importorskip("transformers").TopPLogitsWarper
    model = example_causal_model("llama")
    table = words_of(model)
    # As much memory as two windows need.
    soft = SoftTokenMap(model, window=3, beta=0.2, top_p=0.6, memory=2 * 32 * (6 * 8 + 8))
    assert soft.rows == 2
    starts = windows_of(soft, 5, 3)
    logits = soft.logits(starts)
    expected = torch.softmax(warper(0.6)(None, 0.2 * logits), -1)
    kept = (expected > 0).sum(1)
    assert kept.min() > 1
    assert kept.max() < 32
    found = soft.next_token_distribution(starts)
    torch.testing.assert_close(found, expected)
    token = soft.step(starts)[1]
    np.testing.assert_allclose(token, expected.detach().numpy() @ table, atol=1e-12)
    # At β = 0 all words are alike: six tenths of 32 are twenty.
    uniform = soft.next_token_distribution(starts, beta=0.0)
    torch.testing.assert_close(uniform.max(1).values, torch.full((5,), 0.05).double())
    # Samples come from the nucleus, and a stream begins with the same token.
    drawn = soft.trajectory(starts[:1], steps=1, samples=20_000)[0]
    np.testing.assert_allclose(drawn[:, 0], token[:1], atol=0.05 * np.abs(table).max())
    torch.testing.assert_close(soft.stream(starts, steps=1).tokens[:, 0], token)
    # Derivatives are those of the smooth pieces. Norms compute in single precision.
    line = starts.clone().requires_grad_()
    value = soft.mean_token(line, torch.full((5,), 0.2, dtype=line.dtype))
    toward = torch.randn(value.shape, generator=torch.Generator().manual_seed(1)).to(value)
    (back,) = torch.autograd.grad(value, line, toward)
    change = (soft.step(starts + 1e-3)[1] - soft.step(starts - 1e-3)[1]) / 2e-3
    torch.testing.assert_close((toward * change).sum(), back.sum(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("choice", [{"beta": np.inf}, {"top_p": 1e-6}])
def test_differences_vanish_where_words_are_certain(choice):
    soft = SoftTokenMap(example_causal_model("llama"), window=2, **choice)
    starts = windows_of(soft, 3, 2)
    for count in (1, 2):
        found = soft.lyapunov_spectrum(starts, steps=12, count=count).exponents
        assert (found.value == -np.inf).all()
        assert np.isnan(found.error).all()
    # Greedy decoding with so few words is soon on a cycle.
    attractors = soft.find_attractors(starts, transient=500, steps=96)
    assert (attractors.regime == Regime.PERIODIC).all()


def test_little_memory_gives_the_same():
    model = example_causal_model("qwen")
    whole = SoftTokenMap(model, window=2, beta=0.2)
    parts = SoftTokenMap(model, window=2, beta=0.2, memory=3 * 32 * 8 * 2)
    starts = windows_of(whole, 5, 2)
    for one, other in zip(
        whole.trajectory(starts, steps=3), parts.trajectory(starts, steps=3), strict=True
    ):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(
        whole.next_token_distribution(starts), parts.next_token_distribution(starts)
    )
    betas = torch.tensor([0.01, 0.03, 0.05])
    torch.testing.assert_close(
        whole.fixed_point(beta=betas).value, parts.fixed_point(beta=betas).value
    )
    spectra = [soft.lyapunov_spectrum(starts, steps=6) for soft in (whole, parts)]
    np.testing.assert_allclose(*(one.growth for one in spectra))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_multipliers_and_exponents_are_those_of_dense_derivatives(layout):
    model = example_causal_model(layout)
    table = words_of(model)
    soft = SoftTokenMap(model, window=2, prefix=PREFIX)
    point = soft.fixed_point(beta=0.03, tolerance=1e-7)
    token = point.value.numpy()
    step = plain_step(model, table, np.array([token] * 2), prefix=PREFIX, beta=0.03)
    assert abs(step - token).max() < 1e-4
    matrix = dense_jacobian(model, table, np.array([token] * 2), prefix=PREFIX, beta=0.03)
    expected = np.sort(abs(np.linalg.eigvals(matrix)))[::-1]
    found = soft.multipliers(point.value, beta=0.03, count=3, tolerance=1e-9)
    np.testing.assert_allclose(abs(found), expected[:3], rtol=2e-3)
    # Two exponents: products of dense derivatives, transposed, pulled back from the end.
    starts = windows_of(soft, 2, 2, seed=1)
    spectrum = soft.lyapunov_spectrum(starts, steps=5, transient=1, align=3, count=2, beta=0.2)
    drawn = torch.randn(2, 2, 2, 16, generator=torch.Generator().manual_seed(0)).double()
    for k in range(2):
        orbit = plain_orbit(model, table, starts[k].numpy(), steps=9, prefix=PREFIX, beta=0.2)
        whole = np.concatenate([starts[k].numpy(), orbit])[1:]
        np.testing.assert_allclose(spectrum.tokens[k], orbit[1:6], atol=1e-10)
        basis = drawn[:, k].reshape(2, -1).numpy().T
        growth = np.empty((8, 2))
        for step in reversed(range(8)):
            matrix = dense_jacobian(model, table, whole[step : step + 2], prefix=PREFIX, beta=0.2)
            basis, triangle = np.linalg.qr(matrix.T @ basis)
            growth[step] = np.log(abs(np.diagonal(triangle)))
        np.testing.assert_allclose(spectrum.growth[k], growth[:5], rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(
            spectrum.exponents.value[k], growth[:5].mean(0), rtol=1e-3, atol=1e-3
        )


def test_stability_is_lost_where_the_closed_form_says():
    for window in (1, 3):
        soft = SoftTokenMap(ring(0.9), window=window)
        found = soft.critical_beta(within=(0.5, 4.0))
        assert found.beta == pytest.approx(2.0, rel=1e-4)
        assert found.bracket[0] <= 2.0 * (1 + 1e-4)
        assert found.bracket[1] >= 2.0 * (1 - 1e-4)
        assert found.rotation == pytest.approx(0.9 / (2 * np.pi), abs=1e-3)
        assert abs(found.value).max() < 1e-3
    with pytest.raises(
        soft_map_fixed_points.StaysStable, match=r"stable up to β = 1\.5, .* modulus 0\.750"
    ):
        soft.critical_beta(within=(0.5, 1.5))
    with pytest.raises(ValueError, match="within must begin where the fixed point is stable"):
        soft.critical_beta(within=(3.0, 4.0))
    with pytest.raises(NotConverged, match="fixed point of the map of soft tokens"):
        soft.fixed_point(beta=3.0, start=torch.tensor([0.5, 0.1]).double(), max_steps=2)


def test_a_fixed_point_is_followed_in_steps_in_which_it_is_found(monkeypatch):
    whole = soft_map_fixed_points.fixed_point
    visited = []

    def nearby(soft, *, beta, start=None):
        if start is not None and beta > 1.2 * max(visited):
            raise NotConverged("too far")
        visited.append(beta)
        return whole(soft, beta=beta, start=start)

    monkeypatch.setattr(soft_map_fixed_points, "fixed_point", nearby)
    soft = SoftTokenMap(ring(0.9), window=1)
    assert soft.critical_beta(within=(0.5, 4.0)).beta == pytest.approx(2.0, rel=1e-3)
    visited.clear()
    monkeypatch.setattr(soft_map_fixed_points, "_LEAST_STEP", 0.4)
    with pytest.raises(NotConverged, match="too far"):
        soft.critical_beta(within=(0.5, 4.0))


def test_the_loss_of_stability_is_not_passed_in_a_large_step(monkeypatch):
    """Beyond it a stable fixed point of another branch may be found."""
    whole = soft_map_fixed_points.fixed_point
    visited = []

    def seen(soft, *, beta, start=None):
        visited.append(beta)
        return whole(soft, beta=beta, start=start)

    monkeypatch.setattr(soft_map_fixed_points, "fixed_point", seen)
    # The modulus is β / 2, 0.6 at 1.2.
    SoftTokenMap(ring(0.9), window=1).critical_beta(within=(0.5, 4.0))
    assert visited[:4] == pytest.approx([0.5, 0.5 * 2**0.5, 1.0, 2**0.5])
    assert max(visited) < 2 * 2**0.126


def test_regimes_are_named():
    limit = Thresholds(longest=20)
    start = torch.tensor([[[0.3, 0.2]]]).double()

    def labels(model, start, **options):
        soft = SoftTokenMap(model, window=1)
        found = soft.find_attractors(start, thresholds=limit, **options)
        return found.labels(), found

    # Below and above the loss of stability; an angle that is no fraction, and a fifth of a turn.
    names, found = labels(ring(0.9), start, beta=torch.tensor([1.0, 4.0]), steps=400)
    assert names == ["fixed point", "closed curve"]
    assert found.exponents.value[0, 0] == pytest.approx(np.log(0.5), abs=1e-6)
    assert found.exponents.value[1, 0] == pytest.approx(0.0, abs=0.01)
    names, found = labels(ring(2 * np.pi / 5), start, beta=4.0, steps=60)
    assert names == ["cycle of 5"]
    # The longest period that is looked for is found, the next one is not.
    fifth = SoftTokenMap(ring(2 * np.pi / 5), window=1)
    for longest in (4, 5):
        shown = Thresholds(longest=longest)
        found = fifth.find_attractors(start, thresholds=shown, beta=4.0, steps=60)
        assert (found.labels() == ["cycle of 5"]) == (longest == 5)
    # Two words and a map with a maximum: x' = tanh(β (1 − 2 x²)), whose exponent is a mean of
    # ln |dx'/dx|.
    hump = Toy([[1.0], [-1.0]], lambda x, e: (1 - 2 * x**2) * e.T)
    names, found = labels(hump, torch.tensor([[[0.2]]]).double(), beta=1.2, steps=400)
    x = 0.2
    rates = []
    for step in range(500):
        if step >= 100:
            rates.append(np.log(abs(1.2 * 4 * x / np.cosh(1.2 * (1 - 2 * x**2)) ** 2)))
        x = np.tanh(1.2 * (1 - 2 * x**2))
    assert names == ["chaotic"]
    assert found.regime.tolist() == [Regime.CHAOTIC]
    assert found.exponents.value[0, 0] == pytest.approx(np.mean(rates), abs=0.05)
    assert (found.transient, found.steps) == (100, 400)
    # On the way to a fixed point, which it reaches too slowly.
    names, _ = labels(ring(0.9), start, beta=1.99, transient=0, steps=40)
    assert names == ["undecided"]


def test_samples_leave_the_map_by_the_variance_of_one_word():
    soft = SoftTokenMap(example_causal_model("gpt2"), window=2, beta=0.1)
    start = windows_of(soft, 1, 2)
    weights = soft.next_token_distribution(start)[0].numpy()
    table = words_of(soft.model)
    mean = weights @ table
    variance = weights @ ((table - mean) ** 2).sum(1)
    tokens, _ = soft.trajectory(start.expand(4000, -1, -1), steps=1, samples=20, seed=1)
    squares = ((tokens[:, 0].numpy() - mean) ** 2).sum(1)
    assert squares.mean() == pytest.approx(variance / 20, abs=4 * squares.std() / 4000**0.5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_greedy_cycles_are_those_of_a_list_of_words(layout):
    model = example_causal_model(layout)
    table = words_of(model)
    soft = SoftTokenMap(model, window=2)
    numbers = torch.randint(32, (5, 2), generator=torch.Generator().manual_seed(0))
    found = soft.greedy_cycles(soft.embed(numbers), horizon=200)
    for pair, period, transient in zip(
        numbers.tolist(), found.period, found.transient, strict=True
    ):
        seen = []
        now = tuple(pair)
        while now not in seen:
            seen.append(now)
            token = plain_step(model, table, table[list(now)], beta=np.inf)
            now = (now[1], int(np.flatnonzero((table == token).all(1))[0]))
        assert transient == seen.index(now)
        assert period == len(seen) - transient
    assert soft.greedy_cycles(soft.embed(numbers), horizon=1).period.tolist() == [0] * 5


@pytest.mark.parametrize("layout", ["llama", "qwen", "gpt2"])
def test_a_stream_attends_to_the_prefix_and_the_last_tokens(layout):
    """All tokens at once under a band of a mask, without a cache."""
    model = example_causal_model(layout)
    table = words_of(model)
    window = 3
    for prefix in ((), PREFIX):
        soft = SoftTokenMap(model, window=window, prefix=list(prefix) or None, beta=0.2)
        start = windows_of(soft, 2, window)
        found = soft.stream(start, steps=6)
        assert found.growth is None
        first = len(prefix)
        for k in range(2):
            inputs = np.concatenate([table[list(prefix)].reshape(-1, 16), start[k].numpy()])
            for step in range(6):
                length = len(inputs)
                band = np.tril(np.ones((length, length), dtype=bool))
                band &= np.triu(np.ones((length, length), dtype=bool), 1 - window)
                band[:, :first] |= np.tril(np.ones((length, length), dtype=bool))[:, :first]
                mask = torch.where(torch.from_numpy(band), 0.0, -torch.inf).double()
                with torch.no_grad():
                    logits = model(
                        inputs_embeds=torch.from_numpy(inputs)[None],
                        attention_mask=mask[None, None],
                    ).logits[0, -1]
                token = softmax(0.2 * logits.numpy()) @ table
                np.testing.assert_allclose(found.tokens[k, step], token, atol=1e-9)
                inputs = np.concatenate([inputs, token[None]])


def test_the_distance_of_a_twin_grows_as_an_exponent_does():
    # With a window of one token nothing is kept, and the stream is the map.
    soft = SoftTokenMap(example_causal_model("llama"), window=1, beta=0.15)
    start = windows_of(soft, 3, 1)
    stream = soft.stream(start, steps=90, twin=1e-3, transient=60)
    tokens, _ = soft.trajectory(start, steps=90)
    torch.testing.assert_close(stream.tokens, tokens)
    expected = soft.lyapunov_spectrum(start, steps=20, transient=60, align=10).exponents
    np.testing.assert_allclose(stream.growth[8:].mean(0), expected.value[:, 0], atol=0.1, rtol=0.1)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_last_token_alone_is_multiplied_by_the_vocabulary(layout, dtype):
    """By an index, which torch does not multiply window by window, with the same derivative."""
    model = example_causal_model(layout).to(dtype)
    soft = SoftTokenMap(model, window=3, prefix=PREFIX)
    start = windows_of(soft, 4, 3)
    read = []
    with torch.no_grad():
        model.lm_head.register_forward_hook(lambda module, given, logits: read.append(given[0]))
        soft.logits(start)
    assert [states.shape for states in read] == [(4, 1, 16)]
    assert read[0].is_contiguous()
    results = []
    for logits in (
        soft.logits,
        lambda windows: model(inputs_embeds=soft.with_prefix(windows)).logits[:, -1],
    ):
        windows = start.clone().requires_grad_()
        value = logits(windows)
        (back,) = torch.autograd.grad(torch.softmax(0.3 * value, -1)[:, 5].log().sum(), windows)
        results.append((value, back))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_a_model_that_counts_the_tokens_to_keep_is_told_a_number():
    class Counting(Toy):
        def forward(self, inputs_embeds, logits_to_keep=0):
            kept.append(logits_to_keep)
            return super().forward(inputs_embeds[:, -logits_to_keep:])

    class Strict(Counting):
        def forward(self, inputs_embeds, logits_to_keep=0):
            if not isinstance(logits_to_keep, int):
                raise TypeError("a number")
            return super().forward(inputs_embeds, logits_to_keep)

    class Deaf(Toy):
        def forward(self, inputs_embeds, logits_to_keep=0):
            kept.append(logits_to_keep)
            return super().forward(inputs_embeds)

    kept = []
    plain = ring(0.9)
    start = torch.tensor([[[0.3, 0.2]], [[0.1, -0.2]]]).double()
    expected = SoftTokenMap(plain, window=1).step(start, beta=1.5)[1]
    for kind, number in ((Counting, 1), (Strict, 1), (Deaf, 0)):
        soft = SoftTokenMap(kind(plain.words.weight, plain.function), window=1)
        torch.testing.assert_close(soft.step(start, beta=1.5)[1], expected)
        assert kept[-1] == number


def test_methods_are_functions_of_the_map():
    soft = SoftTokenMap(example_causal_model("llama"), window=2, prefix=PREFIX, beta=0.2)
    start = windows_of(soft, 3, 2)
    assert soft.greedy_cycles(start, horizon=30) == soft_map_greedy.greedy_cycles(
        soft, start, horizon=30
    )
    found = soft_map_lyapunov.lyapunov_spectrum(soft, start, steps=6, count=2)
    np.testing.assert_array_equal(
        found.growth, soft.lyapunov_spectrum(start, steps=6, count=2).growth
    )


@pytest.mark.parametrize(
    ("statement", "loaded"),
    [
        ("import spinformer.language", set()),
        ("from spinformer.language import SoftTokenMap, load_checkpoint", {"torch"}),
    ],
)
def test_large_libraries_are_imported_when_something_needs_them(statement, loaded):
    code = f"import sys; {statement}; print(*({{'torch', 'transformers'}} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == loaded


def test_what_is_no_causal_model_is_refused():
    model = example_causal_model("llama")
    with pytest.raises(TypeError, match="model must be"):
        SoftTokenMap("a name", window=2)
    holder = Checkpoint(model=model, tokenizer=None, name="tiny", quantization="none")
    with pytest.raises(TypeError, match="model must be a Module, got Checkpoint"):
        SoftTokenMap(holder, window=2)
    with pytest.raises(ValueError, match="window must be"):
        SoftTokenMap(model, window=0)
    with pytest.raises(ValueError, match="memory must hold the logits of one window over 32 words"):
        SoftTokenMap(model, window=2, memory=100.0)
    with pytest.raises(ValueError, match="evaluation mode"):
        SoftTokenMap(example_causal_model("llama").train(), window=2)
    with pytest.raises(ValueError, match=r"get_input_embeddings\(\)"):
        SoftTokenMap(nn.Linear(3, 3), window=2)
    capped = example_causal_model("gemma")
    capped.config.final_logit_softcapping = 30.0
    with pytest.raises(ValueError, match="must not softcap its logits, this one does at 30"):
        SoftTokenMap(capped, window=2)
    wide = Toy(np.eye(3), lambda x, e: torch.zeros(*x.shape[:2], 5).double())
    with pytest.raises(ValueError, match="logits over its 3 embedded words"):
        SoftTokenMap(wide, window=2)
    both_ways = Toy(np.eye(3), lambda x, e: (x.sum(1, keepdim=True) + 0 * x) @ e.T)
    with pytest.raises(ValueError, match="must be causal"):
        SoftTokenMap(both_ways, window=2)
    deaf = Toy(np.eye(3), None)
    deaf.forward = lambda input_ids: None
    with pytest.raises(ValueError, match="must take inputs_embeds"):
        SoftTokenMap(deaf, window=2)
    soft = SoftTokenMap(model, window=2)
    start = windows_of(soft, 2)
    for call, message in (
        (lambda: soft.step(start[:1]), r"windows must be torch.float64 \(..., 2, 16\)"),
        (lambda: soft.step(start.float()), "windows must be torch.float64"),
        (lambda: soft.step(start * torch.nan), "windows must be finite"),
        (lambda: soft.step(start, beta=-1.0), "beta must not be negative"),
        (lambda: soft.encode("a"), "tokenizer must be given"),
        (lambda: soft.embed([32]), r"tokens must be in \[0, 31\]"),
        (lambda: soft.embed([0.5]), "tokens must be integers"),
        (lambda: soft.stream(start, steps=600), "steps must end before position 512"),
        (lambda: soft.trajectory(start, steps=-1), "steps must be"),
        (lambda: soft.find_attractors(start, steps=20), "steps must be"),
        (lambda: soft.stream(start, steps=9, twin=1e-6), "twin must be"),
        (lambda: soft.multipliers(start[0, :3]), "token must have shape"),
        (lambda: soft.multipliers(start[0]), "token must be a fixed point at beta = 1"),
        (lambda: soft.multipliers(start[0] * torch.nan), "token must be a fixed point"),
        (lambda: soft.fixed_point(start=start[0, :3]), "start must have shape"),
        (lambda: SoftTokenMap(model, window=2, prefix=torch.zeros(2, 3)), "prefix must be text"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_page_runs_on_any_layout(layout, monkeypatch, capsys):
    page = (Path(__file__).parents[1] / "book" / "use.md").read_text(encoding="utf-8")
    section = page.split("## Your own language model as a map")[1].split("\n## ")[0]
    [code] = re.findall(r"```py\n(.*?)```", section, re.DOTALL)
    words = {"[UNK]": 0, "The": 1, "cold": 2, "clear": 3, "magnet": 4, "thing": 5}
    plain = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tiny = Checkpoint(
        model=example_causal_model(layout),
        tokenizer=PreTrainedTokenizerFast(tokenizer_object=plain),
        name=layout,
        quantization="none",
    )
    monkeypatch.setattr(checkpoints, "load_checkpoint", lambda name: tiny)
    names = {}
    exec(code, names)
    soft = names["soft"]
    last = [[0, 2, 0, 3], [0, 0, 0, 5]]  # "was cold and clear", "is the simplest thing"
    np.testing.assert_array_equal(names["start"], words_of(tiny.model)[last])
    found = names["found"]
    assert found.regime.shape == (2,)
    assert str(found.labels()) in capsys.readouterr().out
    # Every call of the table.
    calls = re.findall(r"`(soft\.\w+\(.*?\))`", section)
    assert len(calls) >= 9
    names["point"] = soft.fixed_point(beta=0.02)
    for call in calls:
        shorter = re.sub(r"(steps|horizon)=\d+", r"\1=6", call)
        shorter = shorter.replace("transient=100", "transient=2").replace("0.5", "0.02")
        if "critical_beta" in call or "find_attractors" in call:
            assert hasattr(soft, call.split(".")[1].split("(")[0])
        else:
            assert eval(shorter, names) is not None


def test_the_error_of_an_exponent_is_the_scatter_of_its_mean():
    """Independent growths of variance one, many times: the mean of n scatters by n^(-1/2)."""
    growth = np.random.default_rng(0).standard_normal((4000, 60, 1))
    estimate = soft_map_lyapunov._averaged(growth)
    scatter = estimate.value.std()
    assert scatter == pytest.approx(60**-0.5, rel=0.05)
    assert np.sqrt((estimate.error**2).mean()) == pytest.approx(scatter, rel=0.08)
