"""Which Python a runtime means on this machine, and the program names that lead to it."""
