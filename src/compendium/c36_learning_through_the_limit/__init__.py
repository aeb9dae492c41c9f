"""Gradients through the mean field as a signal for training the network of finite N."""
