"""HOW an op is computed, by language. A kernel states what it can do; support is read from these records."""
