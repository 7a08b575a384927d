"""Task scores by generation, kept apart from losses."""
