"""What `loadtest.gpu_check` measures, part by part.

checks      what is looked at, what it should be, and what came of it
deadline    the time there is
bench       what all parts share: the device, its rates, one engine with a random model
correctness the op case by case (cases), what surrounds it (pages, nucleus), and the engine's tokens (tokens)
timing      rates of the device, and times of kernels; bandwidth compares the decode kernel with a copy
start       how long the engine takes to start
decoding    steps in the middle of answers; steps compares them with their floor
idle        what the device does between two steps
waits       whether the host waits for the device while it launches steps
prefill     prompts, beside matrix products
peer        the same requests in transformers' own continuous batching
rivals      the same attention in other implementations

Whatever is not a GPU's own runs on a CPU too, with a tiny model: so it is tested.
"""
