"""Custom jobs: their handlers, their checks, and the parts of their translation."""
