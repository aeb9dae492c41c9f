"""Spin systems as neural-network modules: fields in, magnetisations out."""
