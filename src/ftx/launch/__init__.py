"""Jobs in processes of their own: slots, starts, endings, signals. Knows nothing of what a job does."""
