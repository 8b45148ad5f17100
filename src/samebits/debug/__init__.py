"""Looking into a model on a backend: which kernels it gets, what its tensors hold, where two backends differ."""
