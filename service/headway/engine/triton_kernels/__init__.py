"""``headway::paged_attention`` on NVIDIA GPUs, in Triton. Imported only where there is one: see `use_triton_kernels`.

    op ─┬─ write  ── write_pages, rotate_and_write    new keys and values into their pages
        └─ attend ─┬ mixed_attention                  chunks, and decodes beside them
                   └ decode_attention, combine_splits one new token each, split along the context

What runs on the device is in `device`; how it is cut into tiles (`tiles`) and splits (`splits`) is decided on the host,
from shapes alone. No launch waits for the device, and none depends on what lies in a tensor, so that a step can be
captured and replayed.
"""
