"""Guesses at what sequences draw next, and how they are verified."""
