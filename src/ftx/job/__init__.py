"""The story of one run: build, train, evaluate, score, record."""
