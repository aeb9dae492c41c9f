"""The classical memory at a load and a temperature: theory and simulation."""
