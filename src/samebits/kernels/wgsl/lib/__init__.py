"""What kernels share: stating a dispatch (launch.py), a shader's text (compose.py), the table (registry.py)."""
