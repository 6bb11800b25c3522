"""Searches that a configuration file defines, and the module `autosearch`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from turnout.dialects.modelarts.search import autosearch, config_file
from turnout.errors import Invalid
from turnout.job import Search
from turnout.job.algorithms import budgets

FIELD = "algorithm.autosearch_config_path"


def read(text: str) -> tuple[Search, list[str]]:
    notes: list[str] = []
    return config_file.to_search(text.encode(), FIELD, notes), notes


@pytest.mark.parametrize("name", config_file.TEMPLATES)
def test_a_template_can_be_used_as_it_is(name: str):
    search, _ = read(config_file.template(name) or "")
    assert sum(budgets(search)) == (9 if name == "GridSearch" else 8)
    assert search.parallel == 4


def test_every_kind_of_parameter():
    search, notes = read("""
general: {gpu_per_instance: 1}
search_space:
  - params:
    - {type: discrete_param, name: filter_size, values: [3, 5, 7]}
    - {type: discrete_param, name: activation, values: [relu, sigmoid]}
    - {type: continuous_param, name: blocks, start: 2, stop: 4, num: 3}
    - {type: continuous_param, name: learning_rate, start: -1, stop: -5, num: 5, base: 10}
    - {type: continuous_param, name: dropout, start: 1e-3, stop: 1}
    - {type: discrete_param, name: decay, values: [0, 1e-5]}
  - type: discrete
    params:
    - {name: net, values: ["1-11", "1-12"]}
search_algorithm: {type: anneal_search, reward_attr: mean_accuracy, max_concurrent: 2, save_model_count: 3}
scheduler: {type: MedianStoppingRule}
""")
    kinds = {one.name: (one.kind, one.values, one.low, one.high, one.points) for one in search.parameters}
    assert kinds == {
        "filter_size": ("discrete", (3, 5, 7), None, None, None),
        "activation": ("categorical", ("relu", "sigmoid"), None, None, None),
        "blocks": ("discrete", (2, 3, 4), None, None, None),
        "learning_rate": ("float", (), 1e-5, 0.1, 5),
        "dropout": ("float", (), 0.001, 1, None),
        "decay": ("discrete", (0, 1e-5), None, None, None),
        "net": ("categorical", ("1-11", "1-12"), None, None, None),
    }
    assert search.parameters[3].scale == "log"
    assert (search.parallel, search.stopping and search.stopping.kind) == (2, "median")
    assert [note.partition(" has")[0] for note in notes] == [
        f"{FIELD}: search_algorithm.save_model_count",
        f"{FIELD}: general.gpu_per_instance",
    ]


GOOD = """
search_space: [{params: [{type: continuous_param, name: lr, start: 0.1, stop: 1}]}]
search_algorithm: {type: tpe_search, reward_attr: acc}
"""


@pytest.mark.parametrize(
    ("old", "new", "code", "words"),
    [
        ("tpe_search", "dragon_fly", "2826", "search_algorithm.type must be one of"),
        ("reward_attr: acc", "mode: max", "2824", "reward_attr is missing"),
        ("reward_attr: acc", "reward_attr: acc, mode: most", "2824", "must be max or min"),
        ("reward_attr: acc", "reward_attr: acc, num_samples: many", "2826", "num_samples"),
        ("reward_attr: acc", "reward_attr: acc, max_concurrent: 0", "2826", "max_concurrent"),
        ("continuous_param", "odd_param", "2826", "must be continuous_param or discrete_param"),
        (", stop: 1", "", "2826", "start and stop"),
        ("start: 0.1", "start: 1e999", "2826", "out of range"),
        ("start: 0.1, stop: 1", "start: 100, stop: 1000, base: 1000", "2826", "power of start"),
        ("start: 0.1", f"start: {'9' * 400}", "2826", ""),
        ("search_space: [", "search_space: [*a, ", "2826", "aliases"),
        ("search_space: [", "search_space: [[", "2826", "cannot be read"),
        ("search_space", "space", "2826", "search_space"),
        ("search_space: [", "search_space: " + "[" * 2000, "2826", ""),
        ("lr", "\x00", "2826", "cannot be read"),
        ("lr", "../lr", "2826", "letters, digits"),
        ("lr", "x" * config_file.MAX_BYTES, "2826", "bytes"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used(old: str, new: str, code: str, words: str):
    with pytest.raises(Invalid) as caught:
        read(GOOD.replace(old, new))
    assert caught.value.code == f"ModelArts.{code}"
    assert words in caught.value.message
    assert FIELD in caught.value.message


def run(tmp_path: Path, program: str, **values: float) -> list[str]:
    file = tmp_path / "boot.py"
    file.write_text(program)
    module = tmp_path / "packages" / "autosearch.py"
    module.parent.mkdir()
    module.write_text(Path(autosearch.__file__).read_text())
    trial = str(values).replace("'", '"')
    done = subprocess.run(
        [sys.executable, str(module), str(file), "--epochs=1"],
        env=os.environ | {"TURNOUT_TRIAL": trial, "PYTHONPATH": str(module.parent)},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return done.stdout.splitlines()


def test_a_program_reads_its_values_and_reports(tmp_path: Path):
    program = """
import sys, autosearch
for epoch in range(2):
    autosearch.reporter(acc=autosearch.config["lr"] + epoch, loss="none")
print(__name__, sys.argv[1:])
def train(): print("never")
"""
    assert run(tmp_path, program, lr=0.5) == [
        "TURNOUT_METRIC acc=0.5 step=1",
        "TURNOUT_METRIC acc=1.5 step=2",
        "__main__ ['--epochs=1']",
    ]


def test_a_program_that_only_has_train_is_trained(tmp_path: Path):
    program = "from autosearch import reporter\ndef train():\n    reporter(step=7, acc=1)\n"
    assert run(tmp_path, program) == ["TURNOUT_METRIC acc=1.0 step=7"]
