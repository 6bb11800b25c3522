"""Huawei Cloud ModelArts, training jobs of API v2: `/v2/{project_id}/…`, and what its clients need beside it."""

from turnout.dialects.modelarts.house import House
from turnout.dialects.modelarts.looking import link_route
from turnout.dialects.modelarts.routes import Endpoint, owns
from turnout.dialects.modelarts.trials import trial_jobs

__all__ = ["Endpoint", "House", "link_route", "owns", "trial_jobs"]
