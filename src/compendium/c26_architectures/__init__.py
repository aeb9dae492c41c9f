"""Architectures as approximations of one magnetization: errors of couplings and equations."""
