"""A turn of a conversation, neutral of protocols: its prompt, and its answer as text, reasoning and calls."""
