"""Tools: what a request offers, the forms in which models call them, and the grammars that hold a model to a form."""
