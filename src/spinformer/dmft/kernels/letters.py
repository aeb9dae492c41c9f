"""Units of a network of letters, where a network of bits has one tanh: a softmax over letters.

Letters of a site that attention pushes alike form a *class*; class c holds g_c letters and has the
logit β d_c·A relative to class 0, d_c = `patterns`, g = `degeneracy` (groups × classes, class 0
first; a class that a group lacks has g_c = 0). The rows of a group are c = 1, 2, …:

    y_c = (1 − ε) (p_c − (g_c / g_0) p_0),    p_c ∝ g_c exp(β d_c·A) .

A feature averages to zero over the letters, so Σ_c p_c R_c = Σ_{c≥1} y_c R_c / (1 − ε), R_c the
mean of the feature over class c: class 0 needs no row. With two letters y_1 is the tanh of half
the logit. Logits of any size are safe: the largest is subtracted.

Rows of `work`, at least three, are scratch.
"""

from __future__ import annotations

from spinformer.dmft.kernels.arithmetic import exp, fma
from spinformer.dmft.kernels.compiling import kernel
from spinformer.dmft.kernels.lanes import LANES, field


@kernel
def letter_units(patterns, degeneracy, attention, beta, epsilon, hidden, work):
    """y_c of every group into hidden (rows, W)."""
    groups, classes = degeneracy.shape
    largest, floor, total = work[0], work[1], work[2]
    for g in range(groups):
        first = g * (classes - 1)
        for j in range(LANES):
            largest[j] = 0.0
        for c in range(classes - 1):
            row = hidden[first + c]
            field(patterns[first + c], attention, row)
            for j in range(LANES):
                row[j] *= beta[j]
                largest[j] = row[j] if row[j] > largest[j] else largest[j]
        alone = degeneracy[g, 0]
        for j in range(LANES):
            floor[j] = exp(-largest[j])
            total[j] = alone * floor[j]
        for c in range(classes - 1):
            row, many = hidden[first + c], degeneracy[g, c + 1]
            for j in range(LANES):
                e = exp(row[j] - largest[j])
                total[j] = fma(many, e, total[j])
                row[j] = many * (e - floor[j])
        for j in range(LANES):
            total[j] = (1.0 - epsilon[j]) / total[j]
        for c in range(classes - 1):
            row = hidden[first + c]
            for j in range(LANES):
                row[j] *= total[j]


@kernel
def letter_shares(patterns, degeneracy, attention, beta, shares, work):
    """p_c, c ≥ 1, into shares (rows, W), and p_0 / g_0 of group g into shares[rows + g]."""
    groups, classes = degeneracy.shape
    rows = groups * (classes - 1)
    largest, total = work[0], work[1]
    for g in range(groups):
        first = g * (classes - 1)
        for j in range(LANES):
            largest[j] = 0.0
        for c in range(classes - 1):
            row = shares[first + c]
            field(patterns[first + c], attention, row)
            for j in range(LANES):
                row[j] *= beta[j]
                largest[j] = row[j] if row[j] > largest[j] else largest[j]
        alone, floor = degeneracy[g, 0], shares[rows + g]
        for j in range(LANES):
            floor[j] = exp(-largest[j])
            total[j] = alone * floor[j]
        for c in range(classes - 1):
            row, many = shares[first + c], degeneracy[g, c + 1]
            for j in range(LANES):
                row[j] = many * exp(row[j] - largest[j])
                total[j] += row[j]
        for j in range(LANES):
            total[j] = 1.0 / total[j]
            floor[j] *= total[j]
        for c in range(classes - 1):
            row = shares[first + c]
            for j in range(LANES):
                row[j] *= total[j]


@kernel
def letter_change(pushed, degeneracy, beta, epsilon, shares, out, work):
    """Change of y where the rows d_c·A change by `pushed` (rows, W), into out, which may be it.

    δy_c = β (1 − ε) [p_c (δd_c − δd̄) + (g_c / g_0) p_0 δd̄],    δd̄ = Σ_c p_c δd_c .
    """
    groups, classes = degeneracy.shape
    rows = groups * (classes - 1)
    mean = work[0]
    for g in range(groups):
        first = g * (classes - 1)
        for j in range(LANES):
            mean[j] = 0.0
        for c in range(classes - 1):
            for j in range(LANES):
                mean[j] = fma(shares[first + c, j], pushed[first + c, j], mean[j])
        floor = shares[rows + g]
        for c in range(classes - 1):
            row, share, many = out[first + c], shares[first + c], degeneracy[g, c + 1]
            for j in range(LANES):
                change = share[j] * (pushed[first + c, j] - mean[j]) + many * floor[j] * mean[j]
                row[j] = beta[j] * (1.0 - epsilon[j]) * change
