"""Formats that answers must keep: what a request asks for, and many of them compiled at once."""
