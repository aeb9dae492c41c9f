r"""Any causal language model as a dynamical system: the map of soft tokens.

A causal language model reads the embeddings of a window of T tokens and gives logits z of the token
that follows. If N samples are drawn from the next-token distribution p = softmax(β z), and the mean
of their embeddings is read as the next token, then for N → ∞ the model becomes the map

    x_{t+1} = F(x_{t−T+1}, …, x_t) = Σ_v p_v e_v

of windows of T soft tokens, which is known as Soft Thinking [zhang2025soft]; the mean over N
samples is multi-token sampling [gozeten2025continuous]. A prefix (a first token, a chat template, a
prompt) may stand in front of every window. It is read and never moves, so that it is not a part of
the state.

The model is one of the library transformers, or any torch module that takes `inputs_embeds` and
returns `logits`. Derivatives are exact products with the transposed Jacobian, by automatic
differentiation. Rates are in nats per token.
"""

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs
from torch import Tensor
from tqdm import tqdm

from spinformer.core.anderson import anderson
from spinformer.core.checks import check_flag, check_instance, check_integer, check_real
from spinformer.core.random import Seed, TorchSeed, numpy_generator, torch_generator
from spinformer.core.records import record
from spinformer.core.regimes import Regime
from spinformer.core.solve import NotConverged, Solution
from spinformer.core.statistics import Estimate, mean_estimate

# Bytes that the logits of the windows read at once, their probabilities and one copy may take.
_MEMORY = 1e9
# Entries of a window up to which its derivative is written out.
_DENSE = 16
# Stretches of an orbit, from which the errors of exponents are taken.
_STRETCHES = 10


@record
class Thresholds:
    """Thresholds that classify orbits of some hundred tokens, in single precision.

    Attributes
    ----------
    distance : float, default 1e-3
        Largest root mean square distance from a periodic orbit, in units of the tokens' mean
        length.
    longest : int, default 48
        Longest period that is searched for, over as many tokens.
    neutral : float, default 0.02
        Largest absolute exponent, in nats per token, that counts as zero, if it is also zero
        within its error.
    digits_regular : float, default 2.0
        Least number of Birkhoff digits of a closed curve.
    sigmas : float, default 3.0
        Number of standard errors by which the exponent of a chaotic orbit exceeds `neutral`.

    Raises
    ------
    TypeError
        If a threshold is not a number.
    ValueError
        If a threshold is negative, or `longest` is not positive.

    Examples
    --------
    >>> Thresholds(sigmas=4.0).longest
    48
    """

    distance: float = 1e-3
    longest: int = 48
    neutral: float = 0.02
    digits_regular: float = 2.0
    sigmas: float = 3.0

    def __post_init__(self) -> None:
        """Refuse what no threshold can be."""
        check_integer("longest", self.longest, low=1)
        for name in ("distance", "neutral", "digits_regular", "sigmas"):
            check_real(name, getattr(self, name), low=0.0)


@record
class LyapunovSpectrum:
    """Leading Lyapunov exponents of a batch (...) of orbits, in nats per token, largest first.

    Attributes
    ----------
    exponents : Estimate
        Means (..., k) with standard errors over stretches of the orbit.
    growth : ndarray, shape (..., n, k)
        Growth of each direction in each of the n measured tokens.
    tokens : Tensor, shape (..., n, D)
        The tokens along which the growth was measured.
    window : Tensor, shape (..., T, D)
        The windows after the last of them.
    transient : int
        Number of tokens that were dropped before.
    """

    exponents: Estimate
    growth: np.ndarray
    tokens: Tensor
    window: Tensor
    transient: int


@record
class Attractors:
    """Regimes of a batch (...) of orbits, after `transient` tokens and over `steps` more.

    A label is a statement about the tokens that were run: a chaotic transient may last longer than
    these and still end.

    Attributes
    ----------
    regime : ndarray of int, shape (...)
        Values of `spinformer.core.regimes.Regime`.
    period : ndarray of int, shape (...)
        Period in tokens, 1 at a fixed point, 0 where none was found.
    exponents : Estimate
        Leading Lyapunov exponents (..., 1), nats per token.
    digits : ndarray, shape (...)
        Birkhoff digits: −log₁₀ of the largest difference of the weighted averages over two halves
        of the orbit, in units of the tokens' mean length.
    transient : int
        Number of tokens that were dropped.
    steps : int
        Number of tokens that were measured.
    window : Tensor, shape (..., T, D)
        The windows at the end.
    """

    regime: np.ndarray
    period: np.ndarray
    exponents: Estimate
    digits: np.ndarray
    transient: int
    steps: int
    window: Tensor

    def labels(self) -> list[str]:
        """Regimes in words, orbit by orbit.

        Returns
        -------
        list of str
            "fixed point", "cycle of 5", "closed curve", "chaotic" or "undecided".
        """
        words = {Regime.QUASI_PERIODIC: "closed curve"}
        labels = []
        for regime, period in zip(self.regime.ravel(), self.period.ravel(), strict=True):
            kind = Regime(int(regime))
            if kind == Regime.PERIODIC:
                labels.append("fixed point" if period == 1 else f"cycle of {period}")
            else:
                labels.append(words.get(kind, kind.label))
        return labels


@record
class CriticalBeta:
    """Loss of stability of a fixed point.

    Attributes
    ----------
    beta : float
        Inverse temperature at which the leading multiplier leaves the unit circle.
    multiplier : complex
        Leading multiplier at the upper end of the last bracket.
    bracket : tuple of float
        β at which the fixed point is stable, and β at which it is not.
    value : Tensor, shape (D,)
        The fixed point at the upper end of the bracket.
    """

    beta: float
    multiplier: complex
    bracket: tuple[float, float]
    value: Tensor

    @property
    def rotation(self) -> float:
        """Rotation number of the multiplier, in turns per token, in [0, 1/2]."""
        return float(abs(np.angle(self.multiplier)) / (2 * np.pi))


@record
class GreedyCycles:
    """Cycles of greedy decoding with a finite window, one for each start (...).

    Attributes
    ----------
    period : ndarray of int, shape (...)
        Length of the cycle in tokens, 0 where none was found within the horizon.
    transient : ndarray of int, shape (...)
        Number of tokens before the cycle, the horizon where none was found.
    horizon : int
        Number of tokens that were said.
    """

    period: np.ndarray
    transient: np.ndarray
    horizon: int


@record
class Stream:
    """Orbit of the map that keeps the keys and values of the last T tokens.

    Attributes
    ----------
    tokens : Tensor, shape (..., n, D)
        The tokens.
    growth : ndarray, shape (m, ...), or None
        Growth, in nats, of a small distance in each token after the transient; None where no
        distance was followed.
    """

    tokens: Tensor
    growth: np.ndarray | None


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
    With logits z of the token that follows and embeddings e_v of the words,

    .. math::

        F(x_1, \dots, x_T) = \sum_v p_v e_v, \qquad p = \mathrm{softmax}(\beta z(x_1, \dots, x_T)).

    References
    ----------
    [zhang2025soft]

    Examples
    --------
    >>> from spinformer.language.untrained import example_causal_model
    >>> soft = SoftTokenMap(example_causal_model("llama"), window=3, beta=2.0)
    >>> found = soft.fixed_point()
    >>> bool(found.converged), abs(soft.multipliers(found.value)[0]) < 1
    (True, True)
    """

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        window: int,
        prefix: Any = None,
        beta: float = 1.0,
        tokenizer: Any = None,
        memory: float = _MEMORY,
    ) -> None:
        self.model = check_instance("model", model, torch.nn.Module)
        self.window = check_integer("window", window, low=1)
        self.beta = beta if beta == torch.inf else check_real("beta", beta, low=0.0)
        self.tokenizer = tokenizer
        memory = check_real("memory", memory, low=0.0, open_low=True)
        self._options = _call_options(model)
        self._words, self._scale = _embedding_table(model)
        needed = 3 * len(self._words) * self._words.element_size()
        if needed > memory:
            raise ValueError(
                f"memory must hold the logits of one window over {len(self._words)} words, "
                f"{needed:.3g} bytes, got {memory:.3g}"
            )
        self._rows = int(memory // needed)
        self.prefix = self._prefix(prefix)
        self._check_model()

    # ---- what goes in

    @property
    def width(self) -> int:
        """Number of entries D of a token's embedding."""
        return self._words.shape[1]

    @property
    def vocabulary(self) -> int:
        """Number of words V."""
        return len(self._words)

    @property
    def word_scale(self) -> float:
        """Root mean square entry of the words' embeddings, the unit of residuals."""
        return float(self._words.square().mean().sqrt()) * abs(self._scale)

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
        numbers = torch.as_tensor(tokens, device=self._words.device)
        if numbers.is_floating_point() or numbers.is_complex() or numbers.dtype == torch.bool:
            raise ValueError(f"tokens must be integers, got {numbers.dtype}")
        if numbers.numel() and not 0 <= int(numbers.min()) <= int(numbers.max()) < self.vocabulary:
            raise ValueError(f"tokens must be in [0, {self.vocabulary - 1}]")
        return self._words[numbers] * self._scale

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

    # ---- the map

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
        inputs = windows
        if len(self.prefix):
            inputs = torch.cat((self.prefix.expand(len(windows), -1, -1), windows), 1)
        return self.model(inputs_embeds=inputs, **self._options).logits[:, -1]

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
        batch = self._batch(windows, beta)
        with torch.no_grad():
            parts = [self._distribution(w, b) for w, b in batch.chunks(self._rows)]
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
        batch = self._batch(start, beta)
        orbit = self._orbit(
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

    # ---- fixed points and their stability

    def fixed_point(
        self,
        *,
        beta: Any = None,
        start: Tensor | None = None,
        tolerance: float = 1e-5,
        max_steps: int = 300,
        throw: bool = True,
    ) -> Solution[Tensor]:
        r"""Fixed point x = F(x, …, x), stable or not, by Anderson acceleration.

        Parameters
        ----------
        beta : float or Tensor of shape (...), optional
            Inverse temperature; None is that of the map.
        start : Tensor, shape (..., D), optional
            Initial tokens; None is the mean of all words, which the fixed point approaches at
            small β.
        tolerance : float, default 1e-5
            Residual at or below which a system counts as converged.
        max_steps : int, default 300
            Largest number of calls of the map.
        throw : bool, default True
            Whether to raise if a system has not converged.

        Returns
        -------
        Solution
            Tokens (..., D), with the root mean square entry of F(x, …, x) − x in units of that of
            the words as `residual`.

        Raises
        ------
        NotConverged
            If a system has not converged and `throw` is true.
        ValueError
            If a shape does not fit or a value is out of range.
        """
        betas = self._betas(beta)
        mean = self._words.mean(0) * self._scale if start is None else start
        if mean.shape[-1:] != (self.width,):
            raise ValueError(f"start must have shape (..., {self.width}), got {tuple(mean.shape)}")
        shape = torch.broadcast_shapes(betas.shape, mean.shape[:-1])
        flat = betas.expand(shape).reshape(-1)
        tokens = mean.expand(*shape, -1).reshape(-1, 1, self.width)

        def returned(states: Tensor) -> Tensor:
            pairs = zip(states.split(self._rows), flat.split(self._rows), strict=True)
            return torch.cat(
                [self._mean(x.expand(-1, self.window, -1), b)[:, None] for x, b in pairs]
            )

        scale = self.word_scale * self.width**0.5
        found = anderson(returned, tokens, tolerance=tolerance * scale, max_steps=max_steps)
        solution = Solution(
            value=found.value.reshape(*shape, self.width),
            residual=(found.residual / scale).reshape(shape),
            steps=found.steps.reshape(shape),
            status=found.status.reshape(shape),
        )
        if check_flag("throw", throw):
            solution.require("the fixed point of the map of soft tokens")
        return solution

    def multipliers(
        self, token: Tensor, *, beta: float | None = None, count: int = 1, tolerance: float = 1e-3
    ) -> np.ndarray:
        """Leading multipliers of the fixed point at which every token of the window is the same.

        They are eigenvalues of the derivative of the map of windows, by Arnoldi iteration with
        exact products of its transpose. No matrix is written out.

        Parameters
        ----------
        token : Tensor, shape (D,)
            The fixed point.
        beta : float, optional
            Inverse temperature; None is that of the map.
        count : int, default 1
            Number of multipliers, at most T·D.
        tolerance : float, default 1e-3
            Relative accuracy of the iteration.

        Returns
        -------
        ndarray of complex, shape (count,)
            The multipliers, the largest modulus first. Of a complex pair both count.

        Raises
        ------
        NotConverged
            If the iteration does not converge.
        ValueError
            If a shape does not fit or a value is out of range.
        """
        if tuple(token.shape) != (self.width,):
            raise ValueError(f"token must have shape {(self.width,)}, got {tuple(token.shape)}")
        size = self.window * self.width
        count = check_integer("count", count, low=1, high=size)
        (flat_beta,) = self._betas(beta).reshape(-1).unsqueeze(0)
        leaf = token.detach().expand(1, self.window, -1).clone().requires_grad_()
        following = self._mean(leaf, flat_beta)
        kind = np.dtype(str(leaf.dtype).removeprefix("torch."))

        def product(vector: np.ndarray) -> np.ndarray:
            covector = torch.as_tensor(vector, dtype=leaf.dtype, device=leaf.device)
            pulled = _pull_back(leaf, following, covector.reshape(leaf.shape))
            return pulled.detach().cpu().numpy().ravel()

        # One more than asked for, so that a complex pair is not cut.
        asked = count + 1
        if size <= max(_DENSE, asked + 2):
            # Too few entries for an Arnoldi iteration.
            matrix = np.array([product(row) for row in np.eye(size, dtype=kind)])
            return _leading(np.linalg.eigvals(matrix), count)
        operator = LinearOperator((size, size), matvec=product, dtype=kind)
        begin = np.random.default_rng(0).normal(size=size).astype(kind)
        try:
            found = eigs(
                operator,
                k=asked,
                ncv=min(size, max(20, 2 * asked + 1)),
                tol=tolerance,
                v0=begin,
                return_eigenvectors=False,
            )
        except ArpackNoConvergence as error:
            raise NotConverged(f"the multipliers were not found: {error}") from None
        return _leading(found, count)

    def critical_beta(
        self, *, within: tuple[float, float] = (0.05, 4.0), tolerance: float = 1e-3
    ) -> CriticalBeta:
        """Inverse temperature at which the fixed point of small β loses its stability.

        The fixed point is followed from the lower end in factors of √2 until its leading multiplier
        passes one, and the crossing is narrowed down by the secant of ln |μ|.

        Parameters
        ----------
        within : tuple of float, default (0.05, 4.0)
            Interval of β that is searched, from below.
        tolerance : float, default 1e-3
            Width, relative to β, of what is left of the interval.

        Returns
        -------
        CriticalBeta
            The critical β, the multiplier and the fixed point there.

        Raises
        ------
        NotConverged
            If a fixed point is not found on the way, or is stable up to the upper end.
        ValueError
            If `within` is no interval, or the fixed point is unstable at its lower end.
        """
        low, high = within
        low = check_real("within[0]", low, low=0.0, open_low=True)
        high = check_real("within[1]", high, low=low, open_low=True)
        tolerance = check_real("tolerance", tolerance, low=0.0, open_low=True)
        below = self._stability(low, None)
        if below.rate >= 0.0:
            raise ValueError(f"within must begin where the fixed point is stable, got {low}")
        above = below
        while above.rate < 0.0:
            below = above
            if below.beta >= high:
                raise NotConverged(
                    f"the fixed point is stable up to β = {high:g}, where its leading multiplier "
                    f"has the modulus {np.exp(below.rate):.3f}"
                )
            above = self._stability(min(below.beta * 2**0.5, high), below.token)
        while above.beta - below.beta > tolerance * above.beta:
            share = below.rate / (below.rate - above.rate)
            # Not nearer to an end than a tenth, so that both ends move.
            beta = below.beta + min(max(share, 0.1), 0.9) * (above.beta - below.beta)
            middle = self._stability(beta, below.token)
            if middle.rate < 0.0:
                below = middle
            else:
                above = middle
        share = below.rate / (below.rate - above.rate)
        return CriticalBeta(
            beta=below.beta + share * (above.beta - below.beta),
            multiplier=above.multiplier,
            bracket=(below.beta, above.beta),
            value=above.token,
        )

    # ---- exponents and regimes

    def lyapunov_spectrum(
        self,
        start: Tensor,
        *,
        steps: int,
        transient: int = 0,
        align: int | None = None,
        count: int = 1,
        beta: Any = None,
        seed: TorchSeed = 0,
        progress: bool = False,
    ) -> LyapunovSpectrum:
        r"""Leading Lyapunov exponents along orbits, by exact products with transposed derivatives.

        The orbit is run first. Covectors are then pulled back along it from its end; the last
        `align` tokens turn them into the leading directions and are not counted.

        Parameters
        ----------
        start : Tensor, shape (..., T, D)
            Initial windows.
        steps : int
            Number of tokens that are measured.
        transient : int, default 0
            Number of tokens that are dropped before.
        align : int, optional
            Number of tokens behind the measured ones in which covectors align; None is a third of
            `steps`.
        count : int, default 1
            Number k of exponents.
        beta : float or Tensor, optional
            Inverse temperature; None is that of the map.
        seed : int or torch.Generator, default 0
            Source of the first covectors.
        progress : bool, default False
            Whether to draw a progress bar.

        Returns
        -------
        LyapunovSpectrum
            Exponents with errors, growth token by token, and the tokens.

        Raises
        ------
        TypeError
            If an argument is of the wrong type.
        ValueError
            If a shape does not fit or a value is out of range.

        Notes
        -----
        With the derivative J_t of the map of windows, and Q_{t+1} R_{t+1} the QR decomposition of
        what was pulled back so far,

        .. math::

            J_t^{\mathsf T} Q_{t+1} = Q_t R_t, \qquad \lambda_i = \frac1n \sum_t \ln (R_t)_{ii}.

        The error is the scatter of the means of ten consecutive stretches over √10. It is right if
        a stretch is longer than the orbit's memory.

        References
        ----------
        [benettin1980lyapunov]
        """
        steps = check_integer("steps", steps, low=1)
        transient = check_integer("transient", transient, low=0)
        align = steps // 3 if align is None else check_integer("align", align, low=0)
        count = check_integer("count", count, low=1, high=self.window * self.width)
        progress = check_flag("progress", progress)
        batch = self._batch(start, beta)
        orbit = self._orbit(batch, steps=transient + steps + align, progress=progress)
        orbit = orbit[:, transient:]
        growth = self._pulled_growth(
            orbit, batch.betas, align=align, count=count, seed=seed, progress=progress
        )
        shape = batch.shape
        growth = growth.reshape(*shape, steps, count)
        tokens = orbit[:, self.window : self.window + steps]
        windows = orbit[:, steps : steps + self.window]
        return LyapunovSpectrum(
            exponents=_averaged(growth),
            growth=growth,
            tokens=tokens.reshape(*shape, steps, self.width),
            window=windows.reshape(*shape, self.window, self.width),
            transient=transient,
        )

    def find_attractors(
        self,
        start: Tensor,
        *,
        transient: int = 100,
        steps: int = 96,
        beta: Any = None,
        thresholds: Thresholds | None = None,
        progress: bool = False,
    ) -> Attractors:
        """Iterate windows to their attractors and classify these into regimes.

        An orbit is periodic if it returns to itself and its leading exponent is not above zero;
        chaotic if it does not return and its exponent is above zero by more than its error; a
        closed curve if it does not return, its exponent is zero within its error and weighted
        averages converge. Everything else is undecided, most often because it has not reached its
        attractor yet.

        Parameters
        ----------
        start : Tensor, shape (..., T, D)
            Initial windows.
        transient : int, default 100
            Number of tokens that are dropped.
        steps : int, default 96
            Number of tokens that are measured, at least twice the longest period.
        beta : float or Tensor, optional
            Inverse temperature; None is that of the map.
        thresholds : Thresholds, optional
            Thresholds of the classification; None takes the defaults.
        progress : bool, default False
            Whether to draw a progress bar.

        Returns
        -------
        Attractors
            Regime, period and exponent of every orbit.

        Raises
        ------
        TypeError
            If an argument is of the wrong type.
        ValueError
            If a shape does not fit or a value is out of range.

        References
        ----------
        Weighted Birkhoff averages: [das2017quantitative].
        """
        limit = check_instance(
            "thresholds", Thresholds() if thresholds is None else thresholds, Thresholds
        )
        steps = check_integer("steps", steps, low=2 * limit.longest)
        found = self.lyapunov_spectrum(
            start, steps=steps, transient=transient, beta=beta, progress=progress
        )
        shape = found.tokens.shape[:-2]
        tokens = found.tokens.reshape(-1, steps, self.width)
        scale = tokens.norm(dim=-1).mean(1)
        period = _periods(tokens, longest=limit.longest, distance=limit.distance * scale)
        digits = _birkhoff_digits(tokens, scale)
        rate = found.exponents.value[..., 0].reshape(-1)
        error = found.exponents.error[..., 0].reshape(-1)
        above = rate - limit.sigmas * error > limit.neutral
        zero = np.abs(rate) <= np.minimum(limit.neutral, limit.sigmas * error)
        regime = np.select(
            [
                (period > 0) & ~above,
                (period == 0) & zero & (digits >= limit.digits_regular),
                (period == 0) & above,
            ],
            [Regime.PERIODIC, Regime.QUASI_PERIODIC, Regime.CHAOTIC],
            Regime.UNDECIDED,
        )
        return Attractors(
            regime=regime.reshape(shape),
            period=period.reshape(shape),
            exponents=found.exponents,
            digits=digits.reshape(shape),
            transient=transient,
            steps=steps,
            window=found.window,
        )

    def greedy_cycles(self, start: Tensor, *, horizon: int) -> GreedyCycles:
        """Cycles in which greedy decoding ends, the limit β → ∞.

        The last T words decide all that follows, so that every orbit ends in a cycle.

        Parameters
        ----------
        start : Tensor, shape (..., T, D)
            Initial windows.
        horizon : int
            Largest number of words that are said.

        Returns
        -------
        GreedyCycles
            Length of the cycle and of the way to it.

        Raises
        ------
        ValueError
            If a shape does not fit or `horizon` is not positive.
        """
        horizon = check_integer("horizon", horizon, low=1)
        batch = self._batch(start, torch.inf)
        windows = batch.windows.clone()
        seen: list[dict[bytes, int]] = [{} for _ in windows]
        period = np.zeros(len(windows), dtype=int)
        transient = np.full(len(windows), horizon)
        for step in range(horizon):
            for k in np.flatnonzero(period == 0):
                before = seen[k].setdefault(windows[k].cpu().numpy().tobytes(), step)
                if before < step:
                    period[k] = step - before
                    transient[k] = before
            active = torch.as_tensor(np.flatnonzero(period == 0))
            if not len(active):
                break
            said = self._next_tokens(windows[active], batch.betas[active])
            windows[active] = torch.cat((windows[active, 1:], said[:, None]), 1)
        return GreedyCycles(
            period=period.reshape(batch.shape),
            transient=transient.reshape(batch.shape),
            horizon=horizon,
        )

    # ---- keeping keys

    def stream(
        self,
        start: Tensor,
        *,
        steps: int,
        beta: Any = None,
        twin: float | None = None,
        transient: int = 0,
        seed: TorchSeed = 0,
        progress: bool = False,
    ) -> Stream:
        """Iterate the map with a key-value cache of the prefix and the last T tokens.

        Each token is read once, so that a step costs a T-th. It is another map than `trajectory`:
        keys and values were computed from tokens that saw earlier ones, and through L layers the
        past reaches L (T − 1) tokens back.

        Parameters
        ----------
        start : Tensor, shape (..., T, D)
            Initial windows.
        steps : int
            Number of tokens.
        beta : float or Tensor, optional
            Inverse temperature; None is that of the map.
        twin : float, optional
            Distance, in all keys, values and the next token together, at which a second stream is
            kept beside each after the transient; the growth of this distance is the leading
            exponent. None follows none.
        transient : int, default 0
            Number of tokens before the second stream begins.
        seed : int or torch.Generator, default 0
            Source of the direction in which the second stream begins.
        progress : bool, default False
            Whether to draw a progress bar.

        Returns
        -------
        Stream
            The tokens, and the growth of the distance.

        Raises
        ------
        ValueError
            If a shape does not fit, the model keeps no keys and values, or its positions end before
            the stream does.
        """
        steps = check_integer("steps", steps, low=1)
        transient = check_integer("transient", transient, low=0, high=steps)
        batch = self._batch(start, beta)
        betas = batch.betas
        first = len(self.prefix) + self.window
        longest = getattr(_text_config(self.model), "max_position_embeddings", None)
        if longest is not None and first + steps > longest:
            raise ValueError(f"steps must end before position {longest}, got {steps} after {first}")
        cache = _Cache(self.model, prefix=len(self.prefix), window=self.window)
        inputs = batch.windows
        if len(self.prefix):
            inputs = torch.cat((self.prefix.expand(len(inputs), -1, -1), inputs), 1)
        count = len(inputs)
        tokens = []
        growth = []
        with torch.no_grad():
            token = self._means(cache.read(inputs, None), betas)
            for step in _bar(range(steps), show=progress):
                if twin is not None and step == transient:
                    cache.double()
                    betas = betas.repeat(2)
                    noise = torch.randn(token.shape, generator=torch_generator(seed))
                    noise = noise.to(token) * (self.word_scale * twin)
                    token = torch.cat((token, token + noise))
                    cache.rescale(token, count, distance=twin)
                tokens.append(token[:count])
                if step == steps - 1:
                    break
                token = self._means(cache.read(token[:, None], first + step), betas)
                if twin is not None and step >= transient:
                    growth.append(cache.rescale(token, count, distance=twin))
        rates = np.array(growth).reshape(-1, *batch.shape) if twin is not None else None
        orbit = torch.stack(tokens, 1).reshape(*batch.shape, steps, self.width)
        return Stream(tokens=orbit, growth=rates)

    # ---- inside

    def _prefix(self, prefix: Any) -> Tensor:
        """The embeddings (P, D) that stand in front of every window."""
        if prefix is None:
            return self._words.new_empty(0, self.width)
        if isinstance(prefix, str):
            return self.embed(self.encode(prefix))
        given = torch.as_tensor(prefix, device=self._words.device)
        if not given.is_floating_point():
            given = self.embed(given)
        if given.ndim != 2 or given.shape[1] != self.width or given.dtype != self._words.dtype:
            raise ValueError(
                f"prefix must be text, token numbers or embeddings (P, {self.width}) of "
                f"{self._words.dtype}, got {given.dtype} {tuple(given.shape)}"
            )
        if not bool(given.isfinite().all()):
            raise ValueError("prefix must be finite")
        return given

    def _check_model(self) -> None:
        """Refuse a model of which this map cannot be made, by what it does with three tokens."""
        if self.model.training:
            raise ValueError("model must be in evaluation mode: call model.eval() first")
        cap = getattr(_text_config(self.model), "final_logit_softcapping", None)
        if cap is not None:
            raise ValueError(f"model must not softcap its logits, this one does at {cap}")
        probe = self._words[: min(3, self.vocabulary)] * self._scale
        changed = probe.clone()
        changed[-1] = -changed[-1]
        with torch.no_grad():
            try:
                options = {**self._options}
                options.pop("logits_to_keep", None)
                result = self.model(inputs_embeds=torch.stack((probe, changed)), **options).logits
            except (TypeError, ValueError, AttributeError, NotImplementedError) as error:
                raise ValueError(
                    f"model must take inputs_embeds and return logits: {error}"
                ) from None
        if tuple(result.shape[1:]) != (len(probe), self.vocabulary):
            raise ValueError(
                f"model must give logits over its {self.vocabulary} embedded words, got "
                f"{tuple(result.shape)}"
            )
        if not torch.allclose(result[0, :-1], result[1, :-1], rtol=1e-3, atol=1e-3):
            raise ValueError("model must be causal, and logits of this one depend on later tokens")

    def _betas(self, beta: Any) -> Tensor:
        value = torch.as_tensor(
            self.beta if beta is None else beta, dtype=self._words.dtype, device=self._words.device
        )
        if not bool((value >= 0).all()):
            raise ValueError("beta must not be negative")
        return value

    def _batch(self, windows: Tensor, beta: Any) -> "_Batch":
        """Windows and β with one axis in front, and the shape they broadcast to."""
        check_instance("windows", windows, Tensor)
        if windows.shape[-2:] != (self.window, self.width) or windows.dtype != self._words.dtype:
            raise ValueError(
                f"windows must be {self._words.dtype} (..., {self.window}, {self.width}), got "
                f"{windows.dtype} {tuple(windows.shape)}"
            )
        if not bool(windows.isfinite().all()):
            raise ValueError("windows must be finite")
        betas = self._betas(beta)
        shape = torch.broadcast_shapes(betas.shape, windows.shape[:-2])
        flat = windows.detach().expand(*shape, -1, -1).reshape(-1, self.window, self.width)
        return _Batch(windows=flat, betas=betas.expand(shape).reshape(-1), shape=tuple(shape))

    def _distribution(self, windows: Tensor, betas: Tensor) -> Tensor:
        return _softmax(self.logits(windows), betas)

    def _mean(self, windows: Tensor, betas: Tensor) -> Tensor:
        """The map F: mean embedding (B, D) of what follows windows (B, T, D)."""
        return self._distribution(windows, betas) @ self._words * self._scale

    def _means(self, logits: Tensor, betas: Tensor) -> Tensor:
        return _softmax(logits, betas) @ self._words * self._scale

    def _next_tokens(
        self,
        windows: Tensor,
        betas: Tensor,
        *,
        samples: int | None = None,
        generator: np.random.Generator | None = None,
    ) -> Tensor:
        """The tokens after windows (B, T, D), in parts that memory holds."""
        tokens = []
        with torch.no_grad():
            pairs = zip(windows.split(self._rows), betas.split(self._rows), strict=True)
            for part, some in pairs:
                weights = self._distribution(part, some)
                if samples is not None and generator is not None:
                    weights = _sampled(weights, samples, generator)
                tokens.append(weights @ self._words * self._scale)
        return torch.cat(tokens)

    def _orbit(
        self,
        batch: "_Batch",
        *,
        steps: int,
        samples: int | None = None,
        generator: np.random.Generator | None = None,
        progress: bool = False,
    ) -> Tensor:
        """Windows with the tokens after them, (B, T + steps, D)."""
        window = self.window
        orbit = batch.windows.new_empty(len(batch.windows), window + steps, self.width)
        orbit[:, :window] = batch.windows
        for step in _bar(range(steps), show=progress):
            orbit[:, window + step] = self._next_tokens(
                orbit[:, step : step + window], batch.betas, samples=samples, generator=generator
            )
        return orbit

    def _pulled_growth(
        self,
        orbit: Tensor,
        betas: Tensor,
        *,
        align: int,
        count: int,
        seed: TorchSeed,
        progress: bool,
    ) -> np.ndarray:
        """Growth (B, steps, k) of covectors that are pulled back along orbits (B, T + n, D)."""
        window = self.window
        total = orbit.shape[1] - window
        shape = (count, len(orbit), window, self.width)
        covectors = torch.randn(shape, generator=torch_generator(seed)).to(orbit)
        growth = np.empty((len(orbit), total - align, count))
        for number in _bar(reversed(range(total)), show=progress, total=total):
            pulled = []
            windows = orbit[:, number : number + window]
            chunks = zip(
                windows.split(self._rows),
                betas.split(self._rows),
                covectors.split(self._rows, dim=1),
                strict=True,
            )
            for part, some, vectors in chunks:
                leaf = part.clone().requires_grad_()
                following = self._mean(leaf, some)
                pulled.append(torch.stack([_pull_back(leaf, following, v) for v in vectors]))
            covectors = torch.cat(pulled, 1)
            covectors, sizes = _orthonormal(covectors)
            if number < total - align:
                growth[:, number] = sizes.double().log().cpu().numpy()
        return growth

    def _stability(self, beta: float, start: Tensor | None) -> "_Stability":
        token = self.fixed_point(beta=beta, start=start).value
        leading = complex(self.multipliers(token, beta=beta)[0])
        return _Stability(beta=beta, token=token, multiplier=leading)


@record
class _Batch:
    windows: Tensor
    betas: Tensor
    shape: tuple[int, ...]

    def chunks(self, rows: int) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(self.windows.split(rows), self.betas.split(rows), strict=True)


@record
class _Stability:
    beta: float
    token: Tensor
    multiplier: complex

    @property
    def rate(self) -> float:
        """ln |μ| of the leading multiplier."""
        return float(np.log(abs(self.multiplier)))


class _Cache:
    """Keys and values of a prefix and of the last tokens, as transformers keeps them."""

    def __init__(self, model: torch.nn.Module, *, prefix: int, window: int) -> None:
        from transformers import DynamicCache

        self._model = model
        self._kept = prefix
        self._window = window
        self._cache = DynamicCache()
        accepted = inspect.signature(model.forward).parameters
        names = [name for name in ("cache", "past_key_values") if name in accepted]
        if not names:
            raise ValueError("model must keep keys and values to be streamed")
        self._name = names[0]
        self._positions = "position_ids" in accepted

    def read(self, inputs: Tensor, position: int | None) -> Tensor:
        """Logits (B, V) after inputs (B, n, D), the first at `position`, which are kept."""
        options: dict[str, Any] = {self._name: self._cache, "use_cache": True}
        if position is not None:
            # A new token attends to itself and to the T − 1 tokens before it.
            self._drop_oldest()
            if self._positions:
                places = torch.full((len(inputs), 1), position, device=inputs.device)
                options["position_ids"] = places
        result = self._model(inputs_embeds=inputs, **options).logits[:, -1]
        if not self._cache.layers or not hasattr(self._cache.layers[0], "keys"):
            raise ValueError("model must keep keys and values to be streamed")
        return result

    def _drop_oldest(self) -> None:
        first = self._kept
        for layer in self._cache.layers:
            excess = layer.keys.shape[2] - first - (self._window - 1)
            layer.keys = torch.cat(
                (layer.keys[:, :, :first], layer.keys[:, :, first + excess :]), 2
            )
            layer.values = torch.cat(
                (layer.values[:, :, :first], layer.values[:, :, first + excess :]), 2
            )

    def double(self) -> None:
        """Put a copy of every stream behind the streams."""
        for layer in self._cache.layers:
            layer.keys = torch.cat((layer.keys, layer.keys))
            layer.values = torch.cat((layer.values, layer.values))

    def rescale(self, token: Tensor, count: int, *, distance: float) -> np.ndarray:
        """Bring copies back to a distance from their streams; ln of what the distance was in it.

        What the next token no longer reads is brought back, too: it is dropped before it is read.
        """
        self._drop_oldest()
        parts = [token]
        for layer in self._cache.layers:
            parts += [layer.keys, layer.values]
        gaps = [part[count:] - part[:count] for part in parts]
        squares = torch.stack([gap.square().flatten(1).sum(1) for gap in gaps])
        size = squares.sum(0).sqrt()
        for part, gap in zip(parts, gaps, strict=True):
            shrink = (distance / size).view(-1, *[1] * (gap.ndim - 1))
            part[count:] = part[:count] + gap * shrink
        return np.asarray((size / distance).double().log().cpu().numpy())


def _text_config(model: torch.nn.Module) -> Any:
    config: Any = getattr(model, "config", None)
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def _call_options(model: torch.nn.Module) -> dict[str, Any]:
    """What a call of the model may be told, so that no more is computed than needed."""
    accepted = inspect.signature(model.forward).parameters
    wanted = {"use_cache": False, "logits_to_keep": 1}
    return {name: value for name, value in wanted.items() if name in accepted}


def _embedding_table(model: Any) -> tuple[Tensor, float]:
    """Embeddings (V, D) of the words and the factor by which the model reads them.

    Some models multiply their embeddings by the root of the width; a factor in place of another
    table saves memory.
    """
    try:
        layer = model.get_input_embeddings()
        table = layer.weight.detach()
        seen = layer(torch.arange(len(table), device=table.device)[:16]).detach()
    except (AttributeError, NotImplementedError, TypeError) as error:
        raise ValueError(
            f"model must give its embeddings by get_input_embeddings(): {error}"
        ) from None
    if table.ndim != 2 or not table.is_floating_point() or seen.shape[1:] != table.shape[1:]:
        raise ValueError(
            f"model must embed words in a matrix (V, D), got {tuple(table.shape)} {table.dtype}"
        )
    first = table[: len(seen)]
    scale = float((seen * first).sum() / first.square().sum())
    if not torch.allclose(seen, scale * first, rtol=1e-4, atol=1e-6):
        with torch.no_grad():
            return layer(torch.arange(len(table), device=table.device)).detach(), 1.0
    return table, scale


def _softmax(logits: Tensor, betas: Tensor) -> Tensor:
    """Next-token distributions (B, V) at β (B,), where infinity is the likeliest word."""
    greedy = betas.isinf()
    finite = torch.where(greedy, torch.ones_like(betas), betas)
    weights = torch.softmax(finite[:, None] * logits, -1)
    if bool(greedy.any()):
        likeliest = torch.zeros_like(weights).scatter_(1, logits.argmax(1, keepdim=True), 1.0)
        weights = torch.where(greedy[:, None], likeliest, weights)
    return weights


def _sampled(weights: Tensor, samples: int, generator: np.random.Generator) -> Tensor:
    """Fractions (B, V) of `samples` words drawn from each distribution."""
    chances = weights.double().cpu().numpy()
    drawn = generator.multinomial(samples, chances / chances.sum(1, keepdims=True))
    return torch.as_tensor(drawn / samples).to(weights)


def _pull_back(leaf: Tensor, following: Tensor, covector: Tensor) -> Tensor:
    """Jᵀ covector (B, T, D) for the map of windows, from windows and the tokens made of them."""
    (back,) = torch.autograd.grad(following, leaf, covector[:, -1], retain_graph=True)
    back[:, 1:] += covector[:, :-1]
    return back


def _leading(values: np.ndarray, count: int) -> np.ndarray:
    """The `count` values of the largest modulus, largest first."""
    return np.asarray(values[np.argsort(-abs(values), kind="stable")][:count], dtype=complex)


def _orthonormal(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Orthonormal covectors (k, B, T, D) of the same span, and the growth (B, k) of each."""
    count, batch = vectors.shape[:2]
    if count == 1:
        sizes = vectors.flatten(2).norm(dim=2)
        return vectors / sizes[:, :, None, None], sizes.T
    flat = vectors.flatten(2).permute(1, 2, 0)
    basis, triangle = torch.linalg.qr(flat)
    sizes = triangle.diagonal(dim1=1, dim2=2).abs()
    return basis.permute(2, 0, 1).reshape(count, batch, *vectors.shape[2:]), sizes


def _averaged(growth: np.ndarray) -> Estimate:
    """Means (..., k) of growth (..., n, k), with errors from consecutive stretches."""
    steps = growth.shape[-2]
    stretches = min(_STRETCHES, steps)
    value = growth.mean(-2)
    if stretches < 2:
        return Estimate(value=value, error=np.full_like(value, np.nan), samples=stretches)
    parts = np.array_split(growth, stretches, axis=-2)
    means = np.stack([part.mean(-2) for part in parts])
    return Estimate(value=value, error=mean_estimate(means).error, samples=stretches)


def _periods(tokens: Tensor, *, longest: int, distance: Tensor) -> np.ndarray:
    """Periods (B,) of orbits (B, n, D), 0 where none is found."""
    newest_first = tokens.flip(1)
    last = newest_first[:, :longest]
    gaps = []
    for lag in range(1, longest + 1):
        before = newest_first[:, lag : lag + longest]
        gaps.append((last - before).square().sum(2).mean(1).sqrt())
    table = torch.stack(gaps)
    best = table.min(0).values
    # The first lag that is as good as the best one, so that a cycle is not called twice itself.
    first = (table <= 1.5 * best + 1e-6 * distance).int().argmax(0) + 1
    first = torch.where(table[0] <= distance, torch.ones_like(first), first)
    return torch.where(best <= distance, first, torch.zeros_like(first)).cpu().numpy()


def _birkhoff_digits(tokens: Tensor, scale: Tensor) -> np.ndarray:
    """Digits to which weighted averages over two halves of orbits (B, n, D) agree."""
    half = tokens.shape[1] // 2
    place = (torch.arange(half, dtype=torch.float64) + 1) / (half + 1)
    weights = torch.exp(-1 / (place * (1 - place)))
    weights = (weights / weights.sum()).to(tokens)
    early = torch.einsum("t,btd->bd", weights, tokens[:, :half])
    late = torch.einsum("t,btd->bd", weights, tokens[:, half : 2 * half])
    gap = (early - late).norm(dim=1) / scale
    return -np.log10(np.maximum(gap.double().cpu().numpy(), 1e-16))


def _bar(items: Any, *, show: bool, total: int | None = None) -> Any:
    """The items, with a progress bar if it is asked for."""
    return tqdm(items, total=total, unit="token") if show else items
