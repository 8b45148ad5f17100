"""Forms that answers are held to: compiled in a process of its own, followed as masks on tokens."""
