"""Compares Turnout with floors, the bare operations: `python -m bench`. The two sides take turns in one run."""
