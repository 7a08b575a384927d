"""Hydra launcher `pool`: every job in a process of its own."""
