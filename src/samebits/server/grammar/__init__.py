"""Formats that answers must keep: what a request asks for, compiled in a process of its own, as masks on tokens."""
