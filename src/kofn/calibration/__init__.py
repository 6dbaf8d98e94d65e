"""Judges against people: labels read, rates corrected, sheets to label."""
