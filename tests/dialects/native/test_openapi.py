"""docs/openapi.json is true: it has each route, and the structs of the replies.

`driving.Client` checks every reply of the other tests against it.
"""

import json
import re
from typing import Any, cast

import pytest
from starlette.routing import Route

from tests.dialects.native import schema
from tests.dialects.native.driving import Client
from turnout.dialects import Context
from turnout.dialects.native import openapi
from turnout.dialects.native.routes import routes


class _Anything:
    """Stands for the services that the routes are made with; none is called."""

    def __getattr__(self, name: str) -> Any:
        return _Anything()


def test_the_file_is_what_the_structs_make() -> None:
    made = json.loads(json.dumps(openapi.description()))
    made["info"]["version"] = schema.OPENAPI["info"]["version"]
    assert made == schema.OPENAPI, "run python -m turnout.dialects.native.openapi > docs/openapi.json"


def test_each_route_is_in_the_file_and_the_other_way_round() -> None:
    served: set[tuple[str, str]] = set()
    for route in routes(cast(Context, _Anything())):
        assert isinstance(route, Route)
        path = re.sub(r"\{(\w+):path\}", r"{\1}", route.path)
        served |= {(method, path) for method in route.methods or ()}
    described = {
        (method.upper(), path) for path, calls in schema.OPENAPI["paths"].items() for method in calls
    }
    # Starlette answers HEAD wherever there is a GET.
    assert {(method, path) for method, path in served if method != "HEAD"} == {
        (method, path) for method, path in described if method != "HEAD"
    }
    assert {path for method, path in described if method == "HEAD"} == {"/turnout/v1/object"}


@pytest.mark.parametrize("path", ["/whoami", "/jobs", "/queue", "/clusters", "/buckets", "/keys"])
def test_replies_are_as_described(client: Client, path: str) -> None:
    client.get(path)


def test_a_reply_with_another_field_is_noticed() -> None:
    right = {"key": "a", "project": "b", "root": True}
    schema.check_reply("GET", "/whoami", 200, right)
    for wrong in (right | {"more": 1}, right | {"root": "yes"}, {"key": "a", "project": "b"}):
        with pytest.raises(AssertionError):
            schema.check_reply("GET", "/whoami", 200, wrong)
