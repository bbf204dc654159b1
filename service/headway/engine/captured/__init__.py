"""Steps that only decode, recorded once and replayed: hundreds of launches become one.

    DeviceInputs ──▶ fits a shape of the ladder? ─┬─ no ──▶ the forward below
                                                  └─ yes ─▶ copied into StaticInputs, padded ─▶ replay ─▶ logits

A CUDA graph repeats the very launches that it saw: the same grids, the same addresses. So there is one for each batch
size and width of the page table that are worth having (`ladder`); its inputs lie where they lay (`static_inputs`); and
rows that only fill up a batch are sequences of one token in the scratch page, which no other row reads.

What needs a GPU is in `cuda_graphs`. Everything else runs, and is tested, wherever the forward does: with a recorder
that calls instead of replaying (`recording`).
"""
