"""What the engines do, how fast jobs come through them, and what goes wrong."""

from charts.dashboards.panels import (
    MODEL,
    PER_SECOND,
    PROCESS,
    TENANT,
    Kind,
    Panel,
    Query,
    Row,
    Unit,
    of_process,
    quantile,
    quantiles,
    rate,
    workers,
)

WORKERS = Row(
    "Workers and engine",
    (
        Panel(
            "Sequences",
            Unit.NUMBER,
            (
                Query(workers("headway_running_sequences"), "{{model}} running"),
                Query(workers("headway_waiting_sequences"), "{{model}} waiting in the engine"),
            ),
            "Of all workers together.",
        ),
        Panel(
            "Utilisation of the batch",
            Unit.SHARE,
            (Query(f"{rate('headway_busy_slots_total')} / {rate('headway_slots_total')}", "{{model}}"),),
            "Slots that computed something, of those there were, while there was work.",
        ),
        Panel(
            "Sequences per step",
            Unit.NUMBER,
            quantiles("headway_step_sequences"),
            "Large: weights are read once for many.",
        ),
        Panel(
            "Time of a step, 95 %",
            Unit.SECONDS,
            (Query(quantile(0.95, "headway_step_seconds", "model, phase"), "{{model}} {{phase}}"),),
            "By what the step computed. A decode waits for the mixed steps: lower max_prefill_chunk if they are long.",
        ),
        Panel(
            "Tokens computed",
            Unit.NUMBER,
            (Query(rate("headway_step_tokens_sum", "model, phase"), "{{model}} {{phase}} per second"),),
            "Prompt tokens that were found in shared pages are not computed.",
            Kind.STACK,
        ),
        Panel(
            "Tokens per step, median",
            Unit.NUMBER,
            (Query(quantile(0.5, "headway_step_tokens", "model, phase"), "{{model}} {{phase}}"),),
            "Far below max_num_batched_tokens: that limit does not bind.",
        ),
        Panel(
            "KV pages",
            Unit.NUMBER,
            (Query(workers("headway_pages", "model, state"), "{{model}} {{state}}"),),
            "Cached pages hold prefixes that nobody uses now, and are given away when free ones run out.",
            Kind.STACK,
        ),
        Panel(
            "Preemptions",
            Unit.PER_SECOND,
            (Query(rate("headway_preemptions_total"), "{{model}}"),),
            "Pages ran out, and a running sequence lost its own.",
        ),
        Panel(
            "Tokens computed again",
            Unit.SHARE,
            (
                Query(
                    f"{rate('headway_recomputed_tokens_total')} / {rate('headway_step_tokens_sum')}",
                    "{{model}}",
                ),
            ),
            "Of all tokens computed: what preemptions cost.",
        ),
        Panel(
            "Time to decide a step, 95 %",
            Unit.SECONDS,
            (Query(quantile(0.95, "headway_schedule_seconds"), "{{model}}"),),
            "A part of the time of the step.",
        ),
        Panel(
            "Sequences by worker",
            Unit.NUMBER,
            (Query(workers("headway_running_sequences", "model, instance"), "{{instance}}"),),
            "One worker far below the others takes nothing: look at its readiness.",
        ),
        Panel(
            "Free pages by worker",
            Unit.SHARE,
            (
                Query(
                    f'sum by (model, instance) (headway_pages{{{MODEL},state=~"free|cached"}}) / '
                    f"{workers('headway_pages', 'model, instance')}",
                    "{{instance}}",
                ),
            ),
            "Free and cached, of all.",
        ),
    ),
)

LATENCIES = Row(
    "Latencies of jobs",
    (
        Panel(
            "Time to first token",
            Unit.SECONDS,
            quantiles("gen_ai_server_time_to_first_token_seconds", where=TENANT),
            "From a job's arrival, the wait in the queue included. Completed jobs only.",
        ),
        Panel(
            "Time per output token",
            Unit.SECONDS,
            quantiles("gen_ai_server_time_per_output_token_seconds", where=TENANT),
            "After the first. Completed jobs only.",
        ),
        Panel(
            "Duration of a job",
            Unit.SECONDS,
            quantiles("gen_ai_server_request_duration_seconds", where=TENANT),
            "From its arrival to its end.",
        ),
    ),
)

FAILURES = Row(
    "Failures",
    (
        Panel(
            "Jobs that did not complete",
            Unit.PER_SECOND,
            (
                Query(
                    rate("headway_ended_jobs_total", "model, finish_reason", TENANT + ',finish_reason!~"stop|length"'),
                    "{{model}} {{finish_reason}}",
                ),
            ),
            "cancelled and expired are the clients' wish, rejected their mistake, error ours.",
        ),
        Panel(
            "Attempts",
            Unit.PER_SECOND,
            (
                Query(rate("headway_attempts_total", where=TENANT), "{{model}} started"),
                Query(rate("headway_lost_attempts_total"), "{{model}} lost"),
            ),
            "Lost with a worker or its engine; the job goes on in another attempt.",
        ),
        Panel(
            "Dead letters",
            Unit.NUMBER,
            (Query(f"sum by (model) (increase(headway_dead_letters_total{{{MODEL}}}[1h]))", "{{model}} in an hour"),),
            "Jobs given up after max_attempts, or not even readable. `headway dead` lists them.",
        ),
        Panel(
            "Engines that failed",
            Unit.NUMBER,
            (
                Query(
                    f"sum by (model, instance) (increase(headway_engine_failures_total{{{MODEL}}}[1h]))",
                    "{{model}} {{instance}} in an hour",
                ),
            ),
            "Died, hung, or could not start. Another is started at once, then after longer and longer pauses.",
        ),
        Panel(
            "Streams in trouble",
            Unit.NUMBER,
            (
                Query(
                    f'sum by (role, condition) (1 - headway_ready{{{PROCESS},condition=~"nats|streams|results"}})',
                    "{{role}} {{condition}}",
                ),
            ),
            "Processes. nats: no connection. streams: missing or wrong. results: full, or refusing what is written.",
        ),
        Panel(
            "Processes that are not ready",
            Unit.NUMBER,
            (
                Query(
                    f'sum by (role, condition) (1 - headway_ready{{{PROCESS},condition=~"engine|leader"}})',
                    "{{role}} {{condition}}",
                ),
            ),
            "engine: loading, or failed. leader: none that lets it in.",
        ),
    ),
)

PROCESSES = Row(
    "Processes",
    (
        Panel(
            "CPU of queues and workers",
            Unit.NUMBER,
            (Query(of_process(f"rate(process_cpu_seconds_total{PER_SECOND})"), "{{role}} {{pod}} {{instance}}"),),
            "Cores. A leader near 1 is what limits grants.",
        ),
        Panel(
            "Memory of queues and workers",
            Unit.BYTES,
            (Query(of_process("process_resident_memory_bytes"), "{{role}} {{pod}} {{instance}}"),),
            "Resident.",
        ),
        Panel(
            "Open files of queues and workers",
            Unit.NUMBER,
            (Query(of_process("process_open_fds"), "{{role}} {{pod}} {{instance}}"),),
            "Of at most process_max_fds.",
        ),
        Panel(
            "CPU of engines",
            Unit.NUMBER,
            (Query(f"rate(headway_engine_process_cpu_seconds_total{{{PROCESS}}}{PER_SECOND})", "{{instance}}"),),
            "Cores of the child process that runs the model.",
        ),
        Panel(
            "Memory of engines",
            Unit.BYTES,
            (Query(f"headway_engine_process_resident_memory_bytes{{{PROCESS}}}", "{{instance}}"),),
            "Resident, without a GPU's.",
        ),
    ),
)
