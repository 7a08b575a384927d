"""Factors, levels, arms and replicates: which runs a study has. Pure: no files, no Hydra, no torch."""
