"""Candidates and their grades, written for other tools."""
