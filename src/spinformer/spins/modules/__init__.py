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
from spinformer.spins.modules.driven import DrivenSpinModule
from spinformer.spins.modules.parts import ModuleParts
from spinformer.spins.modules.spin_transformer import SpinTransformerModule
from spinformer.spins.modules.stability import coupling_excess
from spinformer.spins.modules.validity import Validity

__all__ = [
    "Anatomy",
    "DrivenSpinModule",
    "ModuleParts",
    "SpinTransformerModule",
    "Validity",
    "autograd_response",
    "coupling_excess",
    "dissect",
    "exponential_couplings",
    "response_attention",
    "softmax_couplings",
    "softmax_response",
    "two_term_magnetization",
]
