"""Every gRPC method leads to a call that the service has."""

import pytest

from turnout.dialects.vertex import address, routes
from turnout.gateways.grpc.methods import methods

METHODS = methods()


@pytest.mark.parametrize("name", sorted(METHODS))
def test_the_service_has_the_call(name: str):
    method = METHODS[name]
    resource = (
        method.resource.replace("projects/**", "projects/x/locations/l")
        .replace("**/operations", "operations")
        .replace("**", "locations/l")
        .replace("*", "x")
    )
    assert method.fits(resource)
    path = method.path.replace(f"{{{method.field}}}", resource)
    parsed = address.parse(path.encode())
    assert parsed is not None
    table = routes.routes_of(parsed)
    assert (method.verb, parsed.verb) in table, path
