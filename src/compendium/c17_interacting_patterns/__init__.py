"""Do patterns that interact make a richer attention step? Three tasks, each with its controls.

What decides stands in the chapter. Predicted before any of it was run, beyond what stands there:

- recall: worse than whitening, the pseudo-inverse and equal norms, since with the state free it is
the plain memory of other patterns (`equivalent_patterns`), and the first look is unchanged.
- completion: better than attention of any β, of as many steps, and, for equal operations, of more
stored patterns on faces, not on digits.
- hops: better than the window alone for every k ≥ 1 by more than 0.2, for no k than the untied
layers by more than the error, and for k = 4 worse than they by more than 0.1.

Trials on three seeds outside of the table set the steps and the rates of the hops. After the table
was made, a random search found better numbers than gradient descent; it is the table `search`. A
trial of the completion (one seed outside of the table) showed interactions in front on the digits
by 0.02; three controls then got finer grids of settings and "local linear" was added.
"""
