"""What the map of soft tokens needs of a causal language model: its embeddings and one call.

Layouts differ in where the embeddings are, in whether they are scaled when they are read, and in
which arguments a call takes. These are asked of the model itself, and no layout is known by name.
"""

import inspect
from typing import Any

import torch
from torch import Tensor

from spinformer.core.records import record


@record
class EmbeddingTable:
    """Embeddings of the words, as the model reads them: rows of a matrix times one factor.

    Some models multiply their embeddings by the root of the width. The factor is kept apart,
    because a second, scaled matrix would take as much memory as the first.

    Attributes
    ----------
    words : Tensor, shape (V, D)
        The matrix.
    scale : float
        The factor.
    """

    words: Tensor
    scale: float

    @property
    def vocabulary(self) -> int:
        """Number of words V."""
        return len(self.words)

    @property
    def width(self) -> int:
        """Number of entries D of an embedding."""
        return self.words.shape[1]

    @property
    def root_mean_square(self) -> float:
        """Root mean square entry of the embeddings."""
        return float(self.words.square().mean().sqrt()) * abs(self.scale)

    @property
    def centroid(self) -> Tensor:
        """Mean (D,) of the embeddings of all words."""
        return self.words.mean(0) * self.scale

    def embed(self, tokens: Any) -> Tensor:
        """Embeddings of words by their numbers.

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
        numbers = torch.as_tensor(tokens, device=self.words.device)
        if numbers.is_floating_point() or numbers.is_complex() or numbers.dtype == torch.bool:
            raise ValueError(f"tokens must be integers, got {numbers.dtype}")
        if numbers.numel() and not 0 <= int(numbers.min()) <= int(numbers.max()) < self.vocabulary:
            raise ValueError(f"tokens must be in [0, {self.vocabulary - 1}]")
        return self.words[numbers] * self.scale

    def average(self, weights: Tensor) -> Tensor:
        """Mean embedding Σ_v p_v e_v under distributions over the words.

        Parameters
        ----------
        weights : Tensor, shape (B, V)
            The distributions p.

        Returns
        -------
        Tensor, shape (B, D)
            The means.
        """
        return weights @ self.words * self.scale


def embedding_table(model: Any) -> EmbeddingTable:
    """Read the embeddings of a model, and the factor by which it scales them.

    Parameters
    ----------
    model : torch.nn.Module
        The causal language model.

    Returns
    -------
    EmbeddingTable
        The embeddings. If the model does more than scale them, they are written out as it gives
        them, with the factor 1.

    Raises
    ------
    ValueError
        If the model does not give its embeddings, or they are not rows of one matrix.
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
    # The factor that fits sixteen words best is the model's, if it fits them exactly.
    first = table[: len(seen)]
    scale = float((seen * first).sum() / first.square().sum())
    if not torch.allclose(seen, scale * first, rtol=1e-4, atol=1e-6):
        with torch.no_grad():
            every = layer(torch.arange(len(table), device=table.device)).detach()
        return EmbeddingTable(words=every, scale=1.0)
    return EmbeddingTable(words=table, scale=scale)


def text_config(model: torch.nn.Module) -> Any:
    """Find the configuration of the part of a model that reads text.

    Parameters
    ----------
    model : torch.nn.Module
        The causal language model, which may read images, too.

    Returns
    -------
    object or None
        The configuration, None if the model has none.
    """
    config: Any = getattr(model, "config", None)
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def call_options(model: torch.nn.Module, table: EmbeddingTable) -> dict[str, Any]:
    """Choose the arguments of a call of the model by which no more is computed than needed.

    The model keeps no keys, and gives the logits of the last token alone, if it can. That token is
    chosen by an index where the model takes one: of a number the library makes a slice, and torch
    multiplies a slice of a batch by the vocabulary window by window, which is slower.

    Parameters
    ----------
    model : torch.nn.Module
        The causal language model.
    table : EmbeddingTable
        Its embeddings.

    Returns
    -------
    dict of str
        The arguments, of those that the model takes.
    """
    accepted = inspect.signature(model.forward).parameters
    options: dict[str, Any] = {"use_cache": False} if "use_cache" in accepted else {}
    if "logits_to_keep" not in accepted:
        return options
    windows = _probe(table).expand(2, -1, -1)
    with torch.no_grad():
        expected = model(inputs_embeds=windows, **options).logits[:, -1:]
        for last in (torch.tensor([-1]), 1):
            chosen = options | {"logits_to_keep": last}
            try:
                result = model(inputs_embeds=windows, **chosen).logits
            # Models outside of the library may take a number only.
            except (IndexError, RuntimeError, TypeError, ValueError):
                continue
            alike = result.shape == expected.shape
            if alike and torch.allclose(result, expected, rtol=1e-3, atol=1e-3):
                return chosen
    return options


def check_causal_model(model: torch.nn.Module, table: EmbeddingTable) -> None:
    """Refuse a model of which no map can be made, by what it does with three tokens.

    Parameters
    ----------
    model : torch.nn.Module
        The causal language model.
    table : EmbeddingTable
        Its embeddings.

    Raises
    ------
    ValueError
        If the model is in training mode, softcaps its logits, takes no `inputs_embeds`, gives no
        logits over the words that are embedded, or is not causal.
    """
    if model.training:
        raise ValueError("model must be in evaluation mode: call model.eval() first")
    cap = getattr(text_config(model), "final_logit_softcapping", None)
    if cap is not None:
        raise ValueError(f"model must not softcap its logits, this one does at {cap}")
    probe = _probe(table)
    changed = probe.clone()
    changed[-1] = -changed[-1]
    with torch.no_grad():
        try:
            result = model(inputs_embeds=torch.stack((probe, changed))).logits
        except (TypeError, ValueError, AttributeError, NotImplementedError) as error:
            raise ValueError(f"model must take inputs_embeds and return logits: {error}") from None
    if tuple(result.shape[1:]) != (len(probe), table.vocabulary):
        raise ValueError(
            f"model must give logits over its {table.vocabulary} embedded words, got "
            f"{tuple(result.shape)}"
        )
    # The last token differs between the two; of a causal model the logits before it do not.
    if not torch.allclose(result[0, :-1], result[1, :-1], rtol=1e-3, atol=1e-3):
        raise ValueError("model must be causal, and logits of this one depend on later tokens")


def _probe(table: EmbeddingTable) -> Tensor:
    """Embeddings (n, D) of the first three words, or of all if there are fewer."""
    return table.words[:3] * table.scale
