"""Searches that nobody can conduct are refused at once."""

from typing import Any, cast

import pytest

from turnout.errors import Unsupported
from turnout.job import NewJob, Program, Role, Search, Spec
from turnout.job.search import Algorithm, Metric, Parameter
from turnout.service import Searches


class WithoutLibraries:
    def missing(self) -> list[str]:
        return ["optuna", "sklearn"]


def job(search: Search | None) -> NewJob:
    return NewJob(
        "p", "tia", "", "j", "j", "here", Spec((Role("master", Program(("true",))),), search=search), b""
    )


def test_the_libraries_have_to_be_there_for_a_search():
    searches = Searches(cast("Any", None), cast("Any", None), cast("Any", WithoutLibraries()))
    searches.check(job(None))
    search = Search((Parameter("x", "float", 0, 1),), (Metric("score"),), (Algorithm("random"),))
    with pytest.raises(Unsupported, match=r"optuna, sklearn on the server: pip install 'turnout\[search\]'"):
        searches.check(job(search))
