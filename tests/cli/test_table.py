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


def test_a_message_of_several_lines_stays_one_row():
    assert table.lines(["MESSAGE"], [["first\n  second"]]) == ["MESSAGE", "first second"]


def test_an_empty_table_is_its_header():
    assert table.lines(HEADER, []) == ["NAME    STATE    MESSAGE"]
    assert table.lines(HEADER, [], no_header=True) == []
