"""By which address a caller is told to find the service again, in links."""

import pytest

from turnout.doors.grpc import Orders
from turnout.doors.grpc.peers import seen_from


@pytest.mark.parametrize(
    ("host", "peer", "seen"),
    [
        ("127.0.0.1", "ipv4:127.0.0.1:50412", "127.0.0.1:8470"),
        ("localhost", "ipv6:%5B::1%5D:50412", "localhost:8470"),
        ("gpu-box.example", "ipv4:10.9.8.7:50412", "gpu-box.example:8470"),
        ("::1", "ipv6:%5B::1%5D:50412", "[::1]:8470"),
        ("0.0.0.0", "ipv4:127.0.0.1:50412", "127.0.0.1:8470"),
        ("::", "ipv6:%5B::ffff:127.0.0.1%5D:50412", "127.0.0.1:8470"),
        ("::", "ipv6:[::1]:50412", "[::1]:8470"),
    ],
)
def test_a_caller_is_told_an_address_that_leads_here(host: str, peer: str, seen: str):
    assert seen_from(peer, Orders(host, 8472, "http://127.0.0.1:8470")) == seen
