"""Models that others trained, in this package's own modules."""
