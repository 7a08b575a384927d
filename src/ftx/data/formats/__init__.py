"""One file format each: an open file in, numbered records out."""
