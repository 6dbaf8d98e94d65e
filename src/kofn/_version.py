"""The version: here, so that modules name it without importing the package's front."""

__version__ = "0.1.0"
