"""The evaluation harness lm-eval with a model `samebits`; `python -m samebits.lm_eval` is its command with it.

lm-eval finds no models in other packages by itself: importing `samebits.lm_eval.model` registers ours.
"""
