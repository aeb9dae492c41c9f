"""KV cache of a prefix and of the last tokens of a window, as transformers keeps it."""

import inspect
from typing import Any

import numpy as np
import torch
from torch import Tensor


def cache_argument(model: torch.nn.Module) -> str:
    """Return the name by which a model of transformers takes its KV cache.

    The library has renamed it, and a model ignores arguments that it does not know.

    Parameters
    ----------
    model : torch.nn.Module
        The model, with or without its read-out.

    Returns
    -------
    str
        The name of the argument.

    Raises
    ------
    ValueError
        If the model takes no keys and values.
    """
    accepted = inspect.signature(model.forward).parameters
    for name in ("cache", "past_key_values"):
        if name in accepted:
            return name
    raise ValueError("model must keep keys and values to be streamed")


class WindowCache:
    """Keys and values of a prefix and of the last tokens of streams, as transformers keeps them.

    Parameters
    ----------
    model : torch.nn.Module
        The causal language model.
    prefix : int
        Number of tokens in front that are never dropped.
    window : int
        Number T of last tokens that a new one attends to, itself counted.

    Raises
    ------
    ValueError
        If the model takes no keys and values.
    """

    def __init__(self, model: torch.nn.Module, *, prefix: int, window: int) -> None:
        from transformers import DynamicCache

        self._model = model
        self._kept = prefix
        self._window = window
        self._cache = DynamicCache()
        self._name = cache_argument(model)
        self._positions = "position_ids" in inspect.signature(model.forward).parameters

    def read(self, inputs: Tensor, position: int | None) -> Tensor:
        """Read tokens and keep their keys and values.

        Parameters
        ----------
        inputs : Tensor, shape (B, n, D)
            Embeddings of n tokens; one alone after the first call.
        position : int or None
            Position of the one token; None in the first call, which begins at 0.

        Returns
        -------
        Tensor, shape (B, V)
            Logits of the token that follows.

        Raises
        ------
        ValueError
            If the model keeps no keys and values.
        """
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
        """Keep the prefix and the T − 1 tokens that the next one attends to beside itself."""
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
        """Bring copies back to a distance from their streams, in place.

        Parameters
        ----------
        token : Tensor, shape (2 B, D)
            The next tokens of the streams, then of their copies.
        count : int
            Number B of streams.
        distance : float
            The distance, in all keys, values and the next token together.

        Returns
        -------
        ndarray, shape (B,)
            Growth of each distance since it was last brought back, in nats.
        """
        # The next token does not read the oldest one, whose distance must not be counted.
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
