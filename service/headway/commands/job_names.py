"""Jobs as people name them: TENANT/ID, or ID alone for the default tenant."""

from __future__ import annotations

from typing import Any

import click

from headway.core.job import JOB_ID, TOKEN, JobKey

DEFAULT_TENANT = "default"


class JobName(click.ParamType):
    name = "TENANT/ID"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> JobKey:
        if isinstance(value, JobKey):
            return value
        tenant, slash, job_id = str(value).partition("/")
        if not slash:
            tenant, job_id = DEFAULT_TENANT, tenant
        if TOKEN.fullmatch(tenant) is None:
            self.fail(f"{value!r}: the tenant must match [a-z0-9-]{{1,63}}", param, ctx)
        if JOB_ID.fullmatch(job_id) is None:
            self.fail(f"{value!r}: the id must match [A-Za-z0-9_-]{{1,128}}", param, ctx)
        return JobKey(tenant, job_id)


def shown(key: JobKey) -> str:
    return f"{key.tenant}/{key.id}"
