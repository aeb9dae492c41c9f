"""Attention with features in proportion to its bits, and with more blocks.

`loaded`: the mean field at a load, texts of finite networks, and the tables of scores, paths, rest,
limits and onsets. `blocks`: the mean field with a residual connection and a feed-forward block, and
the tables census (120 networks of a family and 60 of a second, seven conditions), settings_C23 and
longer (ten times the wait). Predictions and what came out stand in the chapter.
"""
