"""Hydra sweeper `ofat`: one factor at a time."""
