"""The parts of a spin system in a layer of a trained language model."""
