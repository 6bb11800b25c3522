"""Persistent resources: names of clusters."""
