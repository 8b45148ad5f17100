"""Other protocols than chat completions: each a translation into a turn, and of its events back."""
