"""TensorIR kernels, a folder per kind of device."""
