"""Gradients through the mean field as a signal for training the network of finite N.

`learning`: rollouts, three gradients and the exact one; `quality`: bias and variance where the
exact one is known; `training`: two tasks at equal work; `horizons`: how far ahead a gradient sees.
"""
