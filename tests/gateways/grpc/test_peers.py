"""By which address a caller is told to find the service again, in links."""

import pytest

from turnout.gateways.grpc import GatewaySetup
from turnout.gateways.grpc.callers import service_address
from turnout.gateways.grpc.connections import Ends


@pytest.mark.parametrize(
    ("host", "called", "seen"),
    [
        ("127.0.0.1", "127.0.0.1", "127.0.0.1:8470"),
        ("localhost", "::1", "localhost:8470"),
        ("gpu-box.example", "10.9.8.7", "gpu-box.example:8470"),
        ("::1", "::1", "[::1]:8470"),
        ("0.0.0.0", "10.9.8.7", "10.9.8.7:8470"),
        ("::", "::ffff:127.0.0.1", "127.0.0.1:8470"),
        ("::", "::1", "[::1]:8470"),
    ],
)
def test_links_have_the_address_that_the_caller_used(host: str, called: str, seen: str):
    ends = Ends((called, 50412), (called, 8472))
    assert service_address(ends, GatewaySetup(3, host, "http://127.0.0.1:8470")) == seen
