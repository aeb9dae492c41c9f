"""Chapter 31: attention beside the bipartite Hopfield network, random networks in four measures.

`EXPONENTS`: leading Lyapunov exponents of real-valued random networks, symmetric and asymmetric,
against inverse temperature and size; the chapter runs a few of the same networks live. Features
are rows (P, N) as in `core.states`, exponents in nats per step.
"""
