"""Metadata stores: contexts (experiments and their runs), executions and artifacts."""
