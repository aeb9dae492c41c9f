"""Do patterns that interact make a richer attention step? Three tasks, each with its controls.

Predicted before any of it was run, beyond what the chapter says. Recall: worse than whitening, the
pseudo-inverse and equal norms. Completion: better than attention of as many steps, and, for equal
operations, of more stored patterns on faces, not on digits. Hops: better than the window alone for
every k ≥ 1 by more than 0.2, for no k than the untied layers by more than the error, and for k = 4
worse than they by more than 0.1.

Trials on seeds outside of the tables, three of the hops, one of the completion, set steps and rates
of the hops; as interactions were in front on the digits by 0.02, three controls got finer grids of
settings and "local linear" was added. The table `search` was made after that of the hops.
"""
