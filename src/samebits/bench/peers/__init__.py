"""What a peer's own interpreter runs: the peer and the standard library, nothing of ours."""
