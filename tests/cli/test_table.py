from turnout.cli import table

HEADER = ["NAME", "STATE", "MESSAGE"]
ROWS = [["cpu-job", "Succeeded", ""], ["a-longer-name", "Failed", "[MASTER/Failed : Failed/1]"]]


def test_columns_are_as_wide_as_their_longest_cell_with_four_spaces_between():
    assert table.lines(HEADER, ROWS) == [
        "NAME             STATE        MESSAGE",
        "cpu-job          Succeeded",
        "a-longer-name    Failed       [MASTER/Failed : Failed/1]",
    ]


def test_without_header():
    assert table.lines(HEADER, ROWS[:1], no_header=True) == ["cpu-job    Succeeded"]


def test_cut_to_the_terminal():
    lines = table.lines(HEADER, ROWS, width=40)
    assert lines[2] == "a-longer-name    Failed       [MASTER/F…"
    assert all(len(line) <= 40 for line in lines)


def test_a_wide_first_column_is_cut_so_that_the_state_stays():
    lines = table.lines(HEADER, [["x" * 40, "Failed", "[MASTER/Failed : Failed/1]"]], width=40)
    assert lines[1] == f"{'x' * 21}…  Failed  [MASTER…"


def test_whether_a_table_fits():
    assert table.fits(HEADER, ROWS, False, 56)
    assert not table.fits(HEADER, ROWS, False, 55)
    assert table.fits(HEADER, ROWS, False, 34, whole=False)
    assert not table.fits(HEADER, ROWS, False, 33, whole=False)
    assert table.fits(HEADER, ROWS, False, None)


def test_the_last_column_wraps_instead_of_being_cut():
    rows = [["address", "ok", "a sentence that is longer than its place"]]
    assert table.wrapped(["WHAT", "STATUS", "FOUND"], rows, 45) == [
        "WHAT       STATUS    FOUND",
        "address    ok        a sentence that is",
        "                     longer than its place",
    ]
    assert table.wrapped(["WHAT", "STATUS", "FOUND"], rows, None)[1].endswith("longer than its place")


def test_a_message_of_several_lines_stays_one_row():
    assert table.lines(["MESSAGE"], [["first\n  second"]]) == ["MESSAGE", "first second"]


def test_an_empty_table_is_its_header():
    assert table.lines(HEADER, []) == ["NAME    STATE    MESSAGE"]
    assert table.lines(HEADER, [], no_header=True) == []
