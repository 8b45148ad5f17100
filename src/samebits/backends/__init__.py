"""WHERE ops run: the interface, discovery, and one file or folder per device."""
