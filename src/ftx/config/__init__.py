"""What a run is: the typed schema, and the way from a command line to a checked `RunConfig`."""
