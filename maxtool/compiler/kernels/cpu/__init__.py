"""CPU kernels: float32 activations, packed weights, any row count."""
