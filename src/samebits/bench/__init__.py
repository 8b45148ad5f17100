"""Measurement: models and ops beside hardware limits and other engines in one run. Only ratios in a run mean much."""
