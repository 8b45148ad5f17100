"""What clients send: OpenAI's bodies and their fields, read within bounds; prompts of them as token ids."""
