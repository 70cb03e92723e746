"""Lessons: the manifest, the student's exercise beside the package's own solutions, the check."""
