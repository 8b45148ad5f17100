"""From a checkpoint and token ids to logits and tokens."""
