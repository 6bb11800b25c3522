"""What is found below a directory."""

import os
from pathlib import Path

from turnout.runner.stager.file_tree import Tree
from turnout.runner.supervisor.disk.remove import remove


def test_a_tree_that_is_too_deep_for_a_store_is_named_and_the_rest_is_found(tmp_path: Path) -> None:
    top = tmp_path / "deep"
    top.mkdir()
    here = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for level in range(3000):
        if level in (0, 500, 2999):
            os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=here))
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    tree, warnings = Tree(str(top), ".new"), list[str]()
    found = [seen.path for seen in tree.files(warnings.append)]
    tree.close()
    assert [path.count("/") for path in found] == [500, 0]
    assert len(warnings) == 1
    assert "more than 1024 bytes" in warnings[0]
    remove(str(top))
