"""Routes of OpenAI's API and of our own; protocols/ has those of others."""
