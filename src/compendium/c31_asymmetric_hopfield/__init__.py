"""Chapter 31: attention beside the bipartite Hopfield network, random networks in four measures."""
