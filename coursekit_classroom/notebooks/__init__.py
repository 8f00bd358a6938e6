"""Pages and notebooks: read, cut into cells and programs, and written."""
