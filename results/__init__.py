"""Runs that take longer than a page: each writes the file that it names."""
