"""OpenAI's API over an engine: what clients send is checked, bounded, and answered with the tier it was computed at."""
