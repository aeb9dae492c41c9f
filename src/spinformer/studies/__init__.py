"""The experiments of the chapters: protocols, sweeps over seeds, data. May import every room."""
