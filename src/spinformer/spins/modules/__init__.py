"""Spin systems as neural-network modules: fields in, magnetisations out."""

from spinformer.spins.modules.couplings import (
    autograd_response,
    exponential_couplings,
    response_attention,
    softmax_couplings,
    softmax_response,
    two_term_magnetization,
)
from spinformer.spins.modules.dissection import Anatomy, dissect
from spinformer.spins.modules.spin_transformer import ModuleParts, SpinTransformerModule

__all__ = [
    "Anatomy",
    "ModuleParts",
    "SpinTransformerModule",
    "autograd_response",
    "dissect",
    "exponential_couplings",
    "response_attention",
    "softmax_couplings",
    "softmax_response",
    "two_term_magnetization",
]
