import pytest


@pytest.fixture(scope="session")
def anyio_backend():
    """`async def` tests run on the loop that the service runs on."""
    return "asyncio", {"use_uvloop": True}
