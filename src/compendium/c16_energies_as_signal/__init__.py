"""Can the energies of a transformer's layers replace labels? Small networks, many at once."""
