"""What runs on the GPU. Functions of Triton's language: no types in signatures, constants in capitals."""
