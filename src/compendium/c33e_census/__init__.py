"""Which regimes do other networks show? A thousand networks, no two of one gauge.

Written down with the chapter's predictions: the closed-form onset is an upper bound, up to one even
step of β; the published network is above the 90th percentile in the share of chaos and in the
entropy of its labels over β, and between the 10th and the 90th in its onset.
"""
