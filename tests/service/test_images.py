"""What stands for an image on clusters whose nodes run programs without images: Slurm and Ray."""

from collections.abc import Mapping

import pytest

from turnout.config import RuntimeSettings
from turnout.errors import Unsupported
from turnout.service.images import ImageChoice, ImageRules

RUNTIMES = {
    "mine": RuntimeSettings(python="/opt/mine/bin/python"),
    "boxed": RuntimeSettings(image="team/base:1"),
}


def choose(images: Mapping[str, str], preset: str = "", *, host_python: bool = False) -> ImageChoice:
    rules = ImageRules(images, RUNTIMES, without_images=["slurm"], host_python=host_python)
    return rules.choose("team/train:1", "default", "slurm", preset)


@pytest.mark.parametrize("images", [{"team/train:1": "mine"}, {"team/*": "mine"}, {"*": "mine"}])
def test_a_runtime_of_the_settings_stands_for_it(images: dict[str, str]):
    assert choose(images) == ImageChoice("mine")


def test_the_runtime_of_a_catalogue_goes_before_the_rest():
    assert choose({"*": "mine"}, preset="torch") == ImageChoice("torch")
    assert choose({"team/*": "mine"}, preset="torch") == ImageChoice("mine")


@pytest.mark.parametrize(("images", "host_python"), [({"*": "host"}, False), ({}, True)])
def test_the_python_of_the_nodes_stands_for_it_and_an_event_says_so(
    images: dict[str, str], host_python: bool
):
    choice = choose(images, host_python=host_python)
    assert (choice.runtime, choice.root) == ("", "")
    assert "team/train:1 is not used: the nodes' Python runs the program" in choice.note


@pytest.mark.parametrize(
    "images", [{}, {"*": "pull"}, {"team/train:1": "other/train:2"}, {"team/train:1": "oci:/images/train:1"}]
)
def test_without_either_it_is_refused(images: dict[str, str]):
    with pytest.raises(Unsupported, match=r"'team/train:1' cannot be run.*\"team/train:1\" = \"my-runtime\""):
        choose(images)


def test_a_runtime_that_is_an_image_is_refused():
    with pytest.raises(Unsupported, match="the runtime boxed is the image team/base:1"):
        choose({"team/train:1": "boxed"})


@pytest.mark.parametrize(("default", "python"), [("mine", "the runtime mine"), ("", "this machine's Python")])
def test_the_event_names_the_python_that_runs_the_program(default: str, python: str):
    choice = ImageRules(runtimes=RUNTIMES, default=default).choose("team/train:1", "default")
    expected = f"the image team/train:1 is not used: {python} runs the program"
    assert choice.note.startswith(expected)
    assert expected in choice.notice
