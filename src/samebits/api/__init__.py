"""What a Python user calls."""
