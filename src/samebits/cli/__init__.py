"""The command line. Only this room may import anything."""
