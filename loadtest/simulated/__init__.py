"""The schedule alone, without a model: the real queue and the real scheduler on a virtual clock."""
