"""The story of a study: plan it, see what is done already, run the rest, keep book."""
