"""What waits, for how long, and whose it is."""

from charts.dashboards.panels import (
    MODEL,
    PROCESS,
    SLO_SECONDS,
    TENANT,
    Kind,
    Panel,
    Query,
    Row,
    Unit,
    leader,
    quantile,
    quantiles,
    rate,
)

WITHIN = f'{MODEL},le=~"{SLO_SECONDS}|{SLO_SECONDS}.0"'
"""Prometheus 3 writes whole bounds with a fraction, earlier ones as they come."""

AT_A_GLANCE = Row(
    "At a glance",
    (
        Panel(
            "Waiting jobs",
            Unit.NUMBER,
            (Query(leader("headway_waiting_jobs"), "{{model}}"),),
            "Jobs that no worker has taken.",
            Kind.NUMBER,
        ),
        Panel(
            "Wait until granted, 95 %",
            Unit.SECONDS,
            (Query(quantile(0.95, "headway_queue_seconds"), "{{model}}"),),
            "Of the jobs that were granted lately; those that wait still are not in it.",
            Kind.NUMBER,
        ),
        Panel(
            "Tokens computed per second",
            Unit.NUMBER,
            (Query(rate("headway_step_tokens_sum"), "{{model}}"),),
            "Prompt and output tokens, by all workers together.",
            Kind.NUMBER,
        ),
        Panel(
            "Conditions that do not hold",
            Unit.NUMBER,
            (Query(f"sum by (role) (1 - headway_ready{{{PROCESS}}})", "{{role}}"),),
            "0: every process is ready.",
            Kind.NUMBER,
        ),
    ),
)

QUEUE = Row(
    "Queue",
    (
        Panel(
            "Jobs",
            Unit.NUMBER,
            (
                Query(leader("headway_waiting_jobs"), "{{model}} waiting"),
                Query(leader("headway_outstanding_jobs"), "{{model}} outstanding"),
            ),
            "Outstanding: waiting and leased. The distance of the two lines is what workers hold.",
        ),
        Panel(
            "Workers needed and present",
            Unit.NUMBER,
            (
                Query(leader("headway_workers_needed"), "{{model}} needed"),
                Query(leader("headway_connected_workers"), "{{model}} connected"),
            ),
            "Needed: what would run all outstanding jobs at once. Absent until a worker of the model was ever seen.",
        ),
        Panel(
            "Backlog",
            Unit.NUMBER,
            (Query(leader("headway_backlog_tokens"), "{{model}} tokens"),),
            "Prompt and predicted output tokens of the jobs that wait.",
        ),
        Panel(
            "Wait until granted",
            Unit.SECONDS,
            quantiles("headway_queue_seconds"),
            "From a job's arrival, or its return from a worker, to its grant.",
        ),
        Panel(
            "Oldest waiting job",
            Unit.SECONDS,
            (Query(leader("headway_oldest_wait_seconds"), "{{model}}"),),
            "Rises one second per second while nothing is granted.",
        ),
        Panel(
            f"Granted within {SLO_SECONDS} s",
            Unit.SHARE,
            (
                Query(
                    f"{rate('headway_queue_seconds_bucket', where=WITHIN)} / {rate('headway_queue_seconds_count')}",
                    "{{model}}",
                ),
            ),
            "The objective of the alerts is 99 %.",
        ),
        Panel(
            "Grants",
            Unit.PER_SECOND,
            (Query(rate("headway_grants_total"), "{{model}}"),),
            "Jobs that went to a worker.",
        ),
        Panel(
            "From demand to grant",
            Unit.SECONDS,
            quantiles("headway_grant_seconds"),
            "From when both a waiting job and a worker that asks are there. Long: the leader is busy.",
        ),
        Panel(
            "Epoch of the leader",
            Unit.NUMBER,
            (Query(f"max by (namespace) (headway_leader_epoch{{{PROCESS}}})", "{{namespace}}"),),
            "One higher with every takeover. Absent: nobody leads.",
        ),
    ),
)

TENANTS = Row(
    "Service by tenant",
    (
        Panel(
            "Service",
            Unit.NUMBER,
            (
                Query(
                    f"{rate('headway_prompt_tokens_total', 'tenant', TENANT)} + "
                    f"{rate('headway_output_tokens_total', 'tenant', TENANT)}",
                    "{{tenant}}",
                ),
            ),
            "Prompt and output tokens per second, counted when a job ends.",
            Kind.STACK,
        ),
        Panel(
            "Waiting jobs",
            Unit.NUMBER,
            (Query(leader("headway_tenant_waiting_jobs", "model, tenant", TENANT), "{{model}} {{tenant}}"),),
            "Tenants beyond max_tenant_labels share the label other.",
            Kind.STACK,
        ),
        Panel(
            "Wait until granted, 95 %",
            Unit.SECONDS,
            (Query(quantile(0.95, "headway_queue_seconds", "tenant", TENANT), "{{tenant}}"),),
            "Weighted-fair: who asks for more than its share waits longer, and nobody else does.",
        ),
        Panel(
            "Time to first token, 95 %",
            Unit.SECONDS,
            (Query(quantile(0.95, "gen_ai_server_time_to_first_token_seconds", "tenant", TENANT), "{{tenant}}"),),
            "From the broker's timestamp of the job.",
        ),
        Panel(
            "Jobs ended",
            Unit.PER_SECOND,
            (Query(rate("headway_ended_jobs_total", "tenant", TENANT), "{{tenant}}"),),
            "However they ended.",
        ),
        Panel(
            "Prompt tokens found in shared pages",
            Unit.SHARE,
            (
                Query(
                    f"{rate('headway_cached_tokens_total', 'tenant', TENANT)} / "
                    f"{rate('headway_prompt_tokens_total', 'tenant', TENANT)}",
                    "{{tenant}}",
                ),
            ),
            "Prefixes that were computed before.",
        ),
    ),
)
