"""Turnout beside its bare floors: `python -m bench`. Every ratio is of one run, the two sides taking turns."""
