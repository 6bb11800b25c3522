"""All the addresses that are answered."""

from turnout.dialects.modelarts import (
    algorithms,
    experiments,
    iam,
    jobs,
    looking,
    offers,
    quotas,
    reports,
    searching,
    tags,
    workspaces,
)
from turnout.dialects.modelarts.house import Routes

ROUTES: Routes = [
    *jobs.ROUTES,
    *looking.ROUTES,
    *tags.ROUTES,
    *algorithms.ROUTES,
    *experiments.ROUTES,
    *workspaces.ROUTES,
    *quotas.ROUTES,
    *offers.ROUTES,
    *reports.ROUTES,
    *searching.ROUTES,
    *iam.ROUTES,
]
