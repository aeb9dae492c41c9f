r"""Any causal language model as a dynamical system: the map of soft tokens.

A causal language model reads the embeddings of a window of T tokens and gives logits z of the token
that follows. If N samples are drawn from the next-token distribution p = softmax(β z), and the mean
of their embeddings is read as the next token, then for N → ∞ the model becomes the map

    x_{t+1} = F(x_{t−T+1}, …, x_t) = Σ_v p_v e_v

of windows of T soft tokens, which is known as Soft Thinking [zhang2025soft]; the mean over N
samples is multi-token sampling [gozeten2025continuous]. A prefix (a first token, a chat template, a
prompt) may stand in front of every window. It is read and never moves, so that it is not a part of
the state.

`SoftTokenMap` has the model, what stands in front of a window, and iteration. Each other task has a
module of its own, whose functions take the map first and are its methods, too: fixed points and
their stability (`soft_map_fixed_points`), Lyapunov exponents (`soft_map_lyapunov`), regimes
(`soft_map_attractors`), greedy decoding (`soft_map_greedy`), and the map that keeps keys and values
(`soft_map_stream`).

The model is one of the library transformers, or any torch module that takes `inputs_embeds` and
returns `logits`. Derivatives are exact products with the transposed Jacobian, by automatic
differentiation. Rates are in nats per token.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from spinformer.core.checks import check_flag, check_instance, check_integer, check_real
from spinformer.core.random import Seed, numpy_generator
from spinformer.language import (
    soft_map_attractors,
    soft_map_fixed_points,
    soft_map_greedy,
    soft_map_lyapunov,
    soft_map_stream,
)

# What the methods take and return can be imported from here, too.
from spinformer.language.soft_map_attractors import (
    Thresholds as Thresholds,
    TokenAttractors as TokenAttractors,
)
from spinformer.language.soft_map_fixed_points import CriticalBeta as CriticalBeta
from spinformer.language.soft_map_greedy import GreedyCycles as GreedyCycles
from spinformer.language.soft_map_layouts import (
    call_options,
    check_causal_model,
    embedding_table,
)
from spinformer.language.soft_map_lyapunov import LyapunovSpectrum as LyapunovSpectrum
from spinformer.language.soft_map_orbits import (
    iterate,
    nucleus_at,
    softmax_at,
    window_batch,
)
from spinformer.language.soft_map_stream import Stream as Stream


class SoftTokenMap:
    r"""The map of windows of soft tokens that a causal language model defines.

    Shapes: windows are (..., T, D), the newest token last, and `beta` may have any shape that
    broadcasts with the axes `...` in front. Starts (n, 1, T, D) and β of shape (m,) give (n, m).

    Parameters
    ----------
    model : torch.nn.Module
        Causal language model, as `AutoModelForCausalLM` gives it or `load_checkpoint` does. It must
        be in evaluation mode. It is not changed.
    window : int
        Window T, at least 1.
    prefix : str, sequence of int, Tensor of shape (P, D), or None, default None
        Text, token numbers or embeddings that stand in front of every window. They are read and
        are no part of the state.
    beta : float, default 1.0
        Inverse temperature of the next-token distribution, which each method may replace. Infinity
        is greedy decoding.
    top_p : float, default 1.0
        Probability of the nucleus, in (0, 1]: of the next-token distribution only the likeliest
        words are kept that together have at least this probability, as `generate` of transformers
        does. At 1 all words are kept.
    tokenizer : object or None, default None
        Tokenizer of transformers. Only text needs it.
    memory : float, default 1e9
        Bytes that the logits of the windows that are read at once may take.

    Raises
    ------
    TypeError
        If an argument is of the wrong type.
    ValueError
        If the model is none of which this map can be made: its embeddings cannot be reached, it
        takes no `inputs_embeds`, it is in training mode or not causal, its logits are softcapped,
        they are not over the words that are embedded, or the logits of one window need more than
        `memory`.

    Notes
    -----
    `table` has the embeddings of the words, and `rows` is the number of windows that are read at
    once.

    With logits z of the token that follows and embeddings e_v of the words,

    .. math::

        F(x_1, \dots, x_T) = \sum_v p_v e_v, \qquad p = \mathrm{softmax}(\beta z(x_1, \dots, x_T)).

    With `top_p` below 1 the map jumps where a word enters or leaves the nucleus. Derivatives are
    those of the smooth pieces between the jumps, and so are multipliers and exponents.

    References
    ----------
    [zhang2025soft], [holtzman2020curious] for the nucleus

    Examples
    --------
    >>> from spinformer.language.untrained import example_causal_model
    >>> soft = SoftTokenMap(example_causal_model("llama"), window=3, beta=2.0)
    >>> found = soft.fixed_point()
    >>> bool(found.converged), bool(abs(soft.multipliers(found.value)[0]) < 1)
    (True, True)
    """

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        window: int,
        prefix: Any = None,
        beta: float = 1.0,
        top_p: float = 1.0,
        tokenizer: Any = None,
        memory: float = 1e9,
    ) -> None:
        self.model = check_instance("model", model, torch.nn.Module)
        self.window = check_integer("window", window, low=1)
        greedy = isinstance(beta, float) and beta == torch.inf
        self.beta = beta if greedy else check_real("beta", beta, low=0.0)
        self.top_p = check_real("top_p", top_p, low=0.0, high=1.0, open_low=True)
        self.tokenizer = tokenizer
        memory = check_real("memory", memory, low=0.0, open_low=True)
        self.table = embedding_table(model)
        words = self.table.words
        # The logits, the probabilities made of them, and one copy while these are made.
        needed = 3 * self.vocabulary * words.element_size()
        if self.top_p < 1:
            # The sorted probabilities, their sums, and the places that they had.
            needed += self.vocabulary * (3 * words.element_size() + 8)
        if needed > memory:
            raise ValueError(
                f"memory must hold the logits of one window over {self.vocabulary} words, "
                f"{needed:.3g} bytes, got {memory:.3g}"
            )
        self.rows = int(memory // needed)
        self.prefix = self._read_prefix(prefix)
        check_causal_model(model, self.table)
        self._options = call_options(model, self.table)

    @property
    def width(self) -> int:
        """Number of entries D of a token's embedding."""
        return self.table.width

    @property
    def vocabulary(self) -> int:
        """Number of words V."""
        return self.table.vocabulary

    @property
    def word_scale(self) -> float:
        """Root mean square entry of the words' embeddings, the unit of residuals."""
        return self.table.root_mean_square

    def encode(self, text: str) -> Tensor:
        """Token numbers of a text, without special tokens.

        Parameters
        ----------
        text : str
            The text.

        Returns
        -------
        Tensor of int, shape (n,)
            The token numbers.

        Raises
        ------
        TypeError
            If the text is not a str.
        ValueError
            If the map has no tokenizer.
        """
        check_instance("text", text, str)
        if self.tokenizer is None:
            raise ValueError("tokenizer must be given to read text, this map has none")
        return torch.tensor(self.tokenizer(text, add_special_tokens=False).input_ids)

    def embed(self, tokens: Any) -> Tensor:
        """Embeddings of words as the model reads them, by their numbers.

        Parameters
        ----------
        tokens : Tensor or sequence of int, shape (...)
            Token numbers.

        Returns
        -------
        Tensor, shape (..., D)
            The embeddings.

        Raises
        ------
        ValueError
            If a number is not one of the vocabulary.
        """
        return self.table.embed(tokens)

    def starts(self, texts: Sequence[str]) -> Tensor:
        """Windows that hold the last T tokens of texts.

        Parameters
        ----------
        texts : sequence of str
            Texts of at least T tokens.

        Returns
        -------
        Tensor, shape (n, T, D)
            The windows.

        Raises
        ------
        ValueError
            If a text is too short, or the map has no tokenizer.
        """
        windows = []
        for text in texts:
            numbers = self.encode(text)
            if len(numbers) < self.window:
                raise ValueError(
                    f"texts must hold at least {self.window} tokens, got {len(numbers)} of "
                    f"{text!r:.40}"
                )
            windows.append(self.embed(numbers[-self.window :]))
        return torch.stack(windows)

    def with_prefix(self, windows: Tensor) -> Tensor:
        """Windows with the prefix in front, as the model reads them.

        Parameters
        ----------
        windows : Tensor, shape (B, T, D)
            The windows.

        Returns
        -------
        Tensor, shape (B, P + T, D)
            The prefix and the windows.
        """
        if not len(self.prefix):
            return windows
        return torch.cat((self.prefix.expand(len(windows), -1, -1), windows), 1)

    def logits(self, windows: Tensor) -> Tensor:
        """Logits of the token that follows, with a graph if the windows ask for one.

        Parameters
        ----------
        windows : Tensor, shape (B, T, D)
            The windows.

        Returns
        -------
        Tensor, shape (B, V)
            The logits z.
        """
        inputs = self.with_prefix(windows)
        return self.model(inputs_embeds=inputs, **self._options).logits[:, -1]

    def mean_token(self, windows: Tensor, betas: Tensor) -> Tensor:
        """The map F, with a graph if the windows ask for one.

        Parameters
        ----------
        windows : Tensor, shape (B, T, D)
            The windows.
        betas : Tensor, shape (B,)
            Inverse temperatures.

        Returns
        -------
        Tensor, shape (B, D)
            Mean embeddings of the words that follow.
        """
        return self.table.average(self.word_weights(self.logits(windows), betas))

    def word_weights(self, logits: Tensor, betas: Tensor) -> Tensor:
        """Next-token distributions that logits give, of the nucleus alone if `top_p` is below 1.

        Parameters
        ----------
        logits : Tensor, shape (B, V)
            The logits z.
        betas : Tensor, shape (B,)
            Inverse temperatures.

        Returns
        -------
        Tensor, shape (B, V)
            The probabilities p.
        """
        if self.top_p == 1:
            return softmax_at(logits, betas)
        return nucleus_at(logits, betas, top_p=self.top_p)

    def next_token_distribution(self, windows: Tensor, *, beta: Any = None) -> Tensor:
        """Distribution of the word that follows each window.

        Parameters
        ----------
        windows : Tensor, shape (..., T, D)
            The windows.
        beta : float or Tensor, optional
            Inverse temperature; None is that of the map.

        Returns
        -------
        Tensor, shape (..., V)
            The probabilities p.

        Raises
        ------
        ValueError
            If a shape does not fit or `beta` is negative.
        """
        batch = window_batch(self, windows, beta)
        with torch.no_grad():
            parts = [self.word_weights(self.logits(w), b) for w, b in batch.chunks(self.rows)]
        return torch.cat(parts).reshape(*batch.shape, self.vocabulary)

    def step(self, windows: Tensor, *, beta: Any = None) -> tuple[Tensor, Tensor]:
        """Iterate the map once.

        Parameters
        ----------
        windows : Tensor, shape (..., T, D)
            The windows.
        beta : float or Tensor, optional
            Inverse temperature; None is that of the map.

        Returns
        -------
        windows : Tensor, shape (..., T, D)
            The next windows.
        tokens : Tensor, shape (..., D)
            The new tokens.

        Raises
        ------
        ValueError
            If a shape does not fit or `beta` is negative.
        """
        tokens, following = self.trajectory(windows, steps=1, beta=beta)
        return following, tokens[..., 0, :]

    def trajectory(
        self,
        start: Tensor,
        *,
        steps: int,
        transient: int = 0,
        beta: Any = None,
        samples: int | None = None,
        seed: Seed = 0,
        progress: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Iterate the map, or its ensemble of N samples, and return the tokens.

        Parameters
        ----------
        start : Tensor, shape (..., T, D)
            Initial windows.
        steps : int
            Number of tokens that are kept.
        transient : int, default 0
            Number of tokens that are dropped first.
        beta : float or Tensor, optional
            Inverse temperature; None is that of the map.
        samples : int or None, default None
            Number N of words that are drawn and averaged for each token. None is N → ∞, the map.
        seed : int or numpy.random.Generator, default 0
            Source of the samples.
        progress : bool, default False
            Whether to draw a progress bar.

        Returns
        -------
        tokens : Tensor, shape (..., steps, D)
            The tokens.
        windows : Tensor, shape (..., T, D)
            The windows at the end.

        Raises
        ------
        TypeError
            If an argument is of the wrong type.
        ValueError
            If a shape does not fit or a value is out of range.
        """
        steps = check_integer("steps", steps, low=0)
        transient = check_integer("transient", transient, low=0)
        if samples is not None:
            samples = check_integer("samples", samples, low=1)
        batch = window_batch(self, start, beta)
        orbit = iterate(
            self,
            batch,
            steps=transient + steps,
            samples=samples,
            generator=numpy_generator(seed),
            progress=check_flag("progress", progress),
        )
        tokens = orbit[:, self.window + transient :]
        windows = orbit[:, orbit.shape[1] - self.window :]
        shape = batch.shape
        return tokens.reshape(*shape, steps, self.width), windows.reshape(
            *shape, self.window, self.width
        )

    # The functions of the other modules, with the map in the place of their first argument.
    fixed_point = soft_map_fixed_points.fixed_point
    multipliers = soft_map_fixed_points.multipliers
    critical_beta = soft_map_fixed_points.critical_beta
    lyapunov_spectrum = soft_map_lyapunov.lyapunov_spectrum
    find_attractors = soft_map_attractors.find_attractors
    greedy_cycles = soft_map_greedy.greedy_cycles
    stream = soft_map_stream.stream

    def _read_prefix(self, prefix: Any) -> Tensor:
        """The embeddings (P, D) that stand in front of every window."""
        if prefix is None:
            return self.table.words.new_empty(0, self.width)
        words = self.table.words
        try:
            if isinstance(prefix, str):
                return self.embed(self.encode(prefix))
            given = torch.as_tensor(prefix, device=words.device)
            if not given.is_floating_point():
                given = self.embed(given)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"prefix cannot be read: {error}") from None
        if given.ndim != 2 or given.shape[1] != self.width or given.dtype != words.dtype:
            raise ValueError(
                f"prefix must be text, token numbers or embeddings (P, {self.width}) of "
                f"{words.dtype}, got {given.dtype} {tuple(given.shape)}"
            )
        if not bool(given.isfinite().all()):
            raise ValueError("prefix must be finite")
        return given
