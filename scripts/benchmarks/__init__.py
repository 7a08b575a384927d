"""One thing measured each: `add_options`, and `measure`, which gives data and a table."""
