"""CUDA kernels that run everywhere: on CuPy arrays through NVRTC, on NumPy arrays by emulation."""
