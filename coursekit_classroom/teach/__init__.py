"""The instructor's part: submissions in, grades out."""
