"""The exercises and their classic mistakes: one module per chapter."""
