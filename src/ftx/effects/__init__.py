"""From runs to the table of effects: observations, what makes them comparable, and what was found."""
