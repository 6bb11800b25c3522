"""Other protocols at our edge: the clouds' own tools come in here."""
