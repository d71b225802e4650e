"""Rules for what takes other kernels on a GPU than on a CPU, or another sequence of them."""
