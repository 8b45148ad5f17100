"""`samebits chat`: one message, lines from a program, or a conversation at a terminal.

command       the command, and which of the three it is
conversation  what was said, and its files
talk          a message to the model: its prompt, its answer piece by piece, what it cost
thinking      which part of an answer is reasoning
lines         messages from a program, plain text or JSON
session       a conversation at a terminal, and its commands
editor        the line that is typed
screen        the answer that is shown
"""
