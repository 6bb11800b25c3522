"""The terminal's screen: control sequences in, cells out."""

import pytest

from tests.web.screens import show

ESC = "\x1b"
CSI = ESC + "["


def test_text_wraps_and_scrolls_into_the_history() -> None:
    seen = show("abcdefghij" * 3, "\r\n1\r\n2\r\n3\r\n4", columns=10, rows=4)
    assert seen["lines"] == ["1", "2", "3", "4"]
    assert seen["history"] == ["abcdefghij"] * 3
    assert seen["cursor"] == [1, 3]


def test_a_full_line_wraps_only_when_more_comes() -> None:
    assert show("abcde\r\nx", columns=5)["lines"][:2] == ["abcde", "x"]
    assert show("abcdef", columns=5)["lines"][:2] == ["abcde", "f"]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (f"abc{CSI}2Dx", ["axc"]),
        (f"abc{CSI}Hx", ["xbc"]),
        (f"{CSI}3;4Hx", ["", "", "   x"]),
        (f"a\r\nb{CSI}Ax", ["ax", "b"]),
        ("abc\b\bx", ["axc"]),
        ("a\tb", ["a       b"]),
        (f"abc\r{CSI}2C{CSI}K", ["ab"]),
        (f"abc{CSI}2D{CSI}1K", ["  c"]),
        (f"a\r\nb\r\nc{CSI}2;1H{CSI}J", ["a"]),
        (f"a\r\nb{CSI}2J{CSI}Hx", ["x"]),
        (f"abcdef\r{CSI}2P", ["cdef"]),
        (f"abc\r{CSI}2@x", ["x abc"]),
        (f"abcdef\r{CSI}3X", ["   def"]),
        (f"1\r\n2\r\n3{CSI}H{CSI}M", ["2", "3"]),
        (f"1\r\n2\r\n3{CSI}2H{CSI}L", ["1", "", "2", "3"]),
        (f"ab{CSI}3b", ["abbbb"]),
        (f"{ESC}(0lqk{ESC}(Blqk", ["┌─┐lqk"]),
        (f"a{ESC}7bc{ESC}8x", ["axc"]),
    ],
)  # fmt: skip
def test_sequences(text: str, lines: list[str]) -> None:
    assert show(text)["lines"] == lines + [""] * (5 - len(lines))


def test_a_scroll_region_leaves_the_rest_alone() -> None:
    seen = show("top\r\n1\r\n2\r\n3\r\nend", f"{CSI}2;4r{CSI}4;1H\nnew", rows=5)
    assert seen["lines"] == ["top", "2", "3", "new", "end"]
    assert seen["history"] == []
    back = show("top\r\n1\r\n2\r\n3\r\nend", f"{CSI}2;4r{CSI}2;1H{ESC}Mnew", rows=5)
    assert back["lines"] == ["top", "new", "1", "2", "end"]


def test_colours_and_attributes() -> None:
    cells = show(f"{CSI}1;31mr{CSI}38;5;200;4mx{CSI}48;2;1;2;3my{CSI}0;7mi{CSI}27;95mb{CSI}mp")["cells"][0]
    styles = [style for _, style in cells[:6]]
    assert styles == [
        {"bold": True, "front": 1},
        {"bold": True, "front": 200, "underline": True},
        {"bold": True, "front": 200, "underline": True, "back": "#010203"},
        {"inverse": True},
        {"front": 13},
        {},
    ]


def test_erased_cells_have_the_background() -> None:
    cells = show(f"{CSI}44m{CSI}K")["cells"][0]
    assert cells[19] == [" ", {"back": 4}]


def test_the_alternate_screen_comes_and_goes() -> None:
    there = show("before", f"{CSI}?1049h{CSI}Hvim", "\n" * 10)
    assert there["alternate"]
    assert there["history"] == []
    back = show("before", f"{CSI}?1049h{CSI}Hvim{CSI}?1049l", " after")
    assert (back["lines"][0], back["alternate"]) == ("before after", False)


def test_wide_and_combining_characters() -> None:
    seen = show("日本e\u0301x")
    assert seen["cursor"] == [6, 0]
    assert [text for text, _ in seen["cells"][0][:6]] == ["日", "", "本", "", "e\u0301", "x"]
    assert show("abcd日", columns=5)["lines"][:2] == ["abcd", "日"]


def test_queries_of_programs_are_answered() -> None:
    asked = show(f"ab{CSI}6n{CSI}5n{CSI}c{CSI}>c")
    assert asked["replies"] == [f"{CSI}1;3R", f"{CSI}0n", f"{CSI}?1;2c", f"{CSI}>0;0;0c"]


def test_modes_that_change_the_keys() -> None:
    seen = show(f"{CSI}?1h{CSI}?2004h{CSI}?25l{ESC}]0;a title\x07")
    assert seen["applicationKeys"]
    assert seen["bracketedPaste"]
    assert not seen["cursorShown"]
    assert seen["title"] == "a title"
    assert show(f"{CSI}?1h{ESC}c")["applicationKeys"] is False


def test_a_smaller_window_keeps_the_text() -> None:
    seen = show("1\r\n2\r\n3\r\n4\r\n5", [10, 3], rows=5)
    assert (seen["history"], seen["lines"]) == (["1", "2"], ["3", "4", "5"])
    assert seen["cursor"] == [1, 2]
    assert show("1\r\n2", [10, 3], [30, 6])["lines"] == ["1", "2", "", "", "", ""]


@pytest.mark.parametrize(
    "text",
    [
        f"{CSI}99999999999999999999;999999999999Hx{CSI}9999999A{CSI}999999@{CSI}99999L{CSI}999999S{CSI}99999b",
        f"{CSI}?;;;h{CSI}38;5m{CSI}38m{CSI}48;2;1mx",
        f"{ESC}]" + "x" * 100_000 + "\x07ok",
        f"{CSI}" + "1;" * 50_000 + "mok",
        f"{ESC}P anything {ESC}\\{ESC}X{ESC}\\{ESC}%G{ESC}#8ok",
        f"{CSI}5;2r{CSI}0;0r{CSI}100;200r\n\n\n",
        f"{ESC}M" * 100 + "\x84\x9b\ufffd" + "\u0301" * 100,
    ],
)
def test_no_output_breaks_the_screen(text: str) -> None:
    seen = show(text, "\r\nlast", columns=12, rows=3)
    assert len(seen["lines"]) == 3
    assert all(len(row) == 12 for row in seen["cells"])
    assert any(line.endswith("last") for line in seen["lines"])


def test_a_sequence_may_come_in_pieces() -> None:
    whole = f"a{CSI}1;31mb{ESC}]2;title{ESC}\\{CSI}2;3Hc"
    assert show(*whole) == show(whole)
