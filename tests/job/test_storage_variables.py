"""The variables of the clouds' storage clients, and which of them a program does not get."""

from turnout.job.storage_variables import StorageAccess, variables, withheld

ACCESS = StorageAccess("http://169.254.169.254", "169.254.169.254", "vision", "JOB1A1", "secret", "session")


def without(*own: str) -> set[str]:
    return set(withheld(own))


def test_every_cloud_has_its_variables():
    found = variables(ACCESS)
    assert (
        found["AWS_ENDPOINT_URL"] == found["API_ENDPOINT_OVERRIDE"] == found["S3_ENDPOINT"] == ACCESS.endpoint
    )
    assert found["AWS_ACCESS_KEY_ID"] == found["ACCESS_KEY_ID"] == found["TENCENTCLOUD_SECRET_ID"] == "JOB1A1"
    assert found["AWS_SESSION_TOKEN"] == found["SECURITY_TOKEN"] == found["TENCENTCLOUD_TOKEN"] == "session"
    assert found["GOOGLE_CLOUD_PROJECT"] == "vision"
    assert found["S3_USE_HTTPS"] == "0"
    assert found["COS_ENDPOINT"] == "169.254.169.254"


def test_without_a_metadata_server_google_has_none_of_its_variables():
    found = variables(ACCESS._replace(endpoint="https://turnout.example.org", metadata=""))
    assert not {"API_ENDPOINT_OVERRIDE", "GCE_METADATA_HOST"} & set(found)
    assert found["S3_USE_HTTPS"] == "1"


def test_a_key_of_the_user_is_never_sent_here_nor_the_jobs_key_elsewhere():
    aws = {name for name in variables(ACCESS) if name.startswith("AWS_")}
    assert without("AWS_ACCESS_KEY_ID") == aws
    assert without("AWS_ENDPOINT_URL") == aws
    assert without("AWS_PROFILE") == aws
    google = without("GOOGLE_APPLICATION_CREDENTIALS")
    assert {"API_ENDPOINT_OVERRIDE", "GCE_METADATA_HOST", "FSSPEC_GCS_ENDPOINT_URL"} <= google
    assert without("STORAGE_EMULATOR_HOST") == google
    assert {"S3_ENDPOINT", "SECRET_ACCESS_KEY"} <= without("ACCESS_KEY_ID")


def test_a_region_or_a_project_of_the_user_changes_nothing_else():
    assert without("AWS_REGION") == {"AWS_REGION", "AWS_DEFAULT_REGION"}
    assert without("GOOGLE_CLOUD_PROJECT") == {"GOOGLE_CLOUD_PROJECT"}
    assert without("PATH", "BATCH_SIZE") == set()
