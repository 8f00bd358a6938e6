"""The course around the transformer: checks, grading, live figures."""
