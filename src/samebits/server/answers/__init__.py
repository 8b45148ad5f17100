"""What clients get: the engine's pieces in one order, and OpenAI's shapes of whole answers and chunks."""
