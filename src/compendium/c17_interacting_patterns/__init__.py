"""Do patterns that interact make a richer attention step? Three tasks, each with its controls.

A richer step beats, in at least one task, *every* control that uses at most as many operations a
query and as many stored numbers: the lower end of the paired 95 % interval lies above zero.

Predicted before any of it was run:

- recall: J = −κ offdiag XXᵀ is better than plain attention by less than 0.2, worse than whitening,
the pseudo-inverse and equal norms. Reason: with the state free it is the plain memory of other
patterns (`equivalent_patterns`), and the first look at the query is unchanged.
- completion: J = −κXXᵀ turns matching into a least-squares fit by a convex mixture, and
is better than plain attention of any β, of the same number of steps, and of more stored patterns
for equal operations on faces, not on digits (more digits help more). A pseudo-inverse on the
kernel of attention, whose values are solved for once, is at least as good: no gain over every
control.
- hops: a window with interactions beats the window alone for every k ≥ 1 by more than 0.2,
for no k the untied layers by more than the error, and for k = 4 it loses to them by more than 0.1:
cold symmetric couplings put all weight on a clique [motzkin1965maxima], a chain has only pairs.

Trials on three seeds outside of the table set the steps and the rates of the hops. After the table
was made, a random search found better numbers than gradient descent; it is the table `search`. A
trial of the completion (one seed outside of the table) showed interactions in front on the digits
by 0.02; three controls then got finer grids of settings and "local linear" was added.
"""
