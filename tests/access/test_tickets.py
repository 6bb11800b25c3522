import pytest

from turnout.access.tickets import PASS_SECONDS, TICKET_SECONDS, Grant, Tickets
from turnout.errors import Denied

ERRAND = Grant("shell", "default", 7, "master-0", "AKID")
NOW = 1_000_000.0


def test_a_ticket_is_swapped_once_for_a_pass() -> None:
    tickets = Tickets()
    ticket = tickets.issue(ERRAND, NOW)
    grant, secret = tickets.redeem(ticket, NOW + 1)
    assert grant == tickets.check_pass(secret, NOW + 2) == ERRAND
    assert secret != ticket
    with pytest.raises(Denied, match="used"):
        tickets.redeem(ticket, NOW + 3)


def test_ticket_and_pass_expire() -> None:
    tickets = Tickets()
    with pytest.raises(Denied, match="expired"):
        tickets.redeem(tickets.issue(ERRAND, NOW), NOW + TICKET_SECONDS + 1)
    _, secret = tickets.redeem(tickets.issue(ERRAND, NOW), NOW)
    with pytest.raises(Denied):
        tickets.check_pass(secret, NOW + PASS_SECONDS + 1)


def test_a_fresh_ticket_is_returned_again_until_it_is_used() -> None:
    tickets = Tickets()
    first = tickets.issue(ERRAND, NOW)
    assert tickets.issue(ERRAND, NOW + 5) == first
    assert tickets.issue(ERRAND._replace(key="other"), NOW + 5) != first
    assert tickets.issue(ERRAND._replace(replica="master-1"), NOW + 5) != first
    later = tickets.issue(ERRAND, NOW + TICKET_SECONDS - 10)
    assert later != first, "whoever asks has some time to use it"
    tickets.redeem(later, NOW + TICKET_SECONDS)
    assert tickets.issue(ERRAND, NOW + TICKET_SECONDS) != later


def test_an_unknown_ticket_opens_nothing() -> None:
    tickets = Tickets()
    ticket = tickets.issue(ERRAND, NOW)
    _, secret = tickets.redeem(ticket, NOW)
    for wrong in ("", "x", ticket, secret):
        with pytest.raises(Denied):
            tickets.redeem(wrong, NOW)
    for wrong in ("", "x", ticket):
        with pytest.raises(Denied):
            tickets.check_pass(wrong, NOW)


def test_expired_tickets_are_dropped() -> None:
    tickets = Tickets()
    for number in range(1000):
        tickets.issue(ERRAND._replace(job=number), NOW + number * TICKET_SECONDS)
    assert len(tickets._tickets) <= 2
    assert len(tickets._last) <= 200
