"""Measurement: models and ops timed against ceilings and peers in the same run. Only ratios within a run mean much."""
