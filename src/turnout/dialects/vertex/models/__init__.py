"""Models: their versions, aliases and artifacts."""
