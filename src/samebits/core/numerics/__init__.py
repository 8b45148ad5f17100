"""The portable arithmetic: the operations every reference is written in. Text: docs/numerics.md."""

NUMERICS_VERSION = 1  # frozen: docs/numerics.md says what would change it, and what happens then
