"""The two trained models, read once in a process."""

from functools import cache

from spinformer.language.decoder import load_decoder
from spinformer.language.minilm import load_model

encoder, decoder = cache(load_model), cache(load_decoder)
