"""One model over several GPUs of a pod: tensor parallelism, one process (a *rank*) per GPU.

    worker ◀═ socket ═▶ rank 0, the engine child                rank 1 … n-1, started by rank 0 (`rank`)
                          schedules, samples, detokenizes          loads its shard, makes its pages
                          │ `LeadingForward`                       │ `follow`
                          ├── header of the step ═══ socket ══════▶│ waits here while there is nothing to do
                          ├── token ids, positions, pages … ═ broadcast ═▶
                          └── model ◀══════ all-reduce in every layer (NCCL, or gloo on a CPU) ══════▶ model

transformers' own plan divides the model: columns of the first layer of a pair, rows of the second, attention by heads.
Every rank has its share of the heads' keys and values in pages of the same numbers, so one page table serves all.

Ranks that have done different things cannot be brought together again: a collective that one of them misses blocks the
others for good. So whatever goes wrong inside a forward, on whichever rank, ends the engine child with all its ranks,
as any crash of the engine does: the worker hands the jobs back and starts another. That is also what becomes of a step
for which one GPU has too little memory, where a single GPU would try again with less: a rank that fails half way
through the layers has left collectives unanswered, and no vote after the step could make up for them.
"""
