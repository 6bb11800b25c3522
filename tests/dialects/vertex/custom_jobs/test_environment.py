"""What a replica finds in its environment."""

from typing import Any

from tests.dialects.vertex.jobs import container, job, translated
from turnout.dialects.vertex.resource_names import project_number
from turnout.job import Role
from turnout.job.expand import expand


def role(*variables: tuple[str, str], **spec: Any) -> Role:
    env = [{"name": name, "value": value} for name, value in variables]
    return translated(job(container(env=env), spec=spec)).spec.roles[0]


def at_start(role: Role, service: dict[str, str]) -> dict[str, str]:
    """What the engine does with what is known to it."""
    known, env = dict(service), dict(role.env)
    for name in role.late:
        env[name] = known[name] = expand(env[name], known)
    return env


def test_what_the_service_says():
    env = at_start(role(), {"TURNOUT_JOB": "123"})
    assert env["CLOUD_ML_JOB_ID"] == "123"
    assert env["CLOUD_ML_REGION"] == "us-central1"
    assert env["CLOUD_ML_PROJECT_ID"] == project_number("p1")
    assert not [name for name in env if name.startswith("AIP_")]


def test_the_output_directory():
    for prefix in ("gs://out/run", "gs://out/run/"):
        env = role(baseOutputDirectory={"outputUriPrefix": prefix}).env
        assert env["AIP_MODEL_DIR"] == "gs://out/run/model/"
        assert env["AIP_CHECKPOINT_DIR"] == "gs://out/run/checkpoints/"
        assert env["AIP_TENSORBOARD_LOG_DIR"] == "gs://out/run/logs/"


def test_the_tensorboard():
    name = "projects/p/locations/l/tensorboards/t"
    assert role(tensorboard=name).env["AIP_TENSORBOARD_RESOURCE_NAME"] == name


def test_references_to_earlier_variables_and_to_the_services():
    found = role(
        ("A", "1"),
        ("B", "$(A)-$(C)"),
        ("C", "$$(A)"),
        ("OUT", "$(AIP_MODEL_DIR)x"),
        baseOutputDirectory={"outputUriPrefix": "gs://out"},
    )
    assert (found.env["B"], found.env["C"]) == ("1-$(C)", "$(A)")
    assert found.env["OUT"] == "gs://out/model/x"
    assert found.late == ("CLOUD_ML_JOB_ID",)


def test_references_to_what_is_known_at_the_start_only():
    found = role(
        ("PRICE", "$(5)"), ("A", "$(PRICE)$$-$(RANK)"), ("B", "$(A)/$(CLOUD_ML_JOB_ID)/$(NONE)/$$(RANK)")
    )
    assert found.late == ("CLOUD_ML_JOB_ID", "A", "B")
    env = at_start(found, {"TURNOUT_JOB": "123", "RANK": "$(A)"})
    assert env["A"] == "$(5)$-$(A)"
    assert env["B"] == "$(5)$-$(A)/123/$(NONE)/$(RANK)"


def test_a_variable_of_the_users_own_comes_first():
    found = role(("RANK", "7"), ("A", "$(RANK)"), ("CLOUD_ML_JOB_ID", "mine"))
    assert (found.env["A"], found.env["CLOUD_ML_JOB_ID"], found.late) == ("7", "mine", ())


def test_a_variable_can_build_on_the_services_own():
    found = role(("RANK", "r$(RANK)"), ("A", "$(RANK)"))
    env = at_start(found, {"TURNOUT_JOB": "1", "RANK": "3"})
    assert (env["RANK"], env["A"]) == ("r3", "r3")


def test_project_numbers():
    assert project_number("p1") == project_number("p1") != project_number("p2")
    assert project_number("p1").isdecimal()
    assert len(project_number("p1")) == 12
    assert project_number("123456789012") == "123456789012"
