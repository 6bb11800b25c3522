"""What the process that makes environments tells of uv."""

from turnout.engines.local.environments.builder import shorten, uv_variables, without_secrets


def test_credentials_of_an_index_are_not_repeated():
    line = "error: Failed to fetch: https://ann:s3cret@index.example/simple/torch/ and https://token@other.example/x"
    assert (
        without_secrets(line)
        == "error: Failed to fetch: https://index.example/simple/torch/ and https://other.example/x"
    )


def test_the_error_is_one_line_of_bounded_length():
    lines = ["Resolved 3 packages in 1ms", "error: No solution found", "  cause: Because a was not found", ""]
    assert shorten(lines) == "No solution found cause: Because a was not found"
    long = shorten(["error: " + "x" * 10_000])
    assert (len(long) < 1300, " … " in long) == (True, True)


def test_the_index_is_in_the_environment():
    """The arguments of a process can be read by every user of the machine."""
    given = uv_variables(
        "https://a:b@c/simple", ["https://d/simple"], ["/wheels"], {"https_proxy": "http://p:1"}
    )
    assert given == {
        "https_proxy": "http://p:1",
        "UV_DEFAULT_INDEX": "https://a:b@c/simple",
        "UV_INDEX": "https://d/simple",
        "UV_FIND_LINKS": "/wheels",
    }
    assert uv_variables("", [], [], {}) == {}
