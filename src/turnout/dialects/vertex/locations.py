"""Locations. Every name is valid, because this service serves all of them. The list has those of Google's SDK."""

from typing import Any

from starlette.responses import Response

from turnout.dialects import Context
from turnout.dialects.vertex import reply
from turnout.dialects.vertex.call import Call

REGIONS = (
    "africa-south1", "asia-east1", "asia-east2", "asia-northeast1", "asia-northeast2", "asia-northeast3",
    "asia-south1", "asia-southeast1", "asia-southeast2", "australia-southeast1", "australia-southeast2",
    "europe-central2", "europe-north1", "europe-southwest1", "europe-west1", "europe-west12", "europe-west2",
    "europe-west3", "europe-west4", "europe-west6", "europe-west8", "europe-west9", "me-central1", "me-central2",
    "me-west1", "northamerica-northeast1", "northamerica-northeast2", "southamerica-east1", "southamerica-west1",
    "us-central1", "us-east1", "us-east4", "us-east5", "us-south1", "us-west1", "us-west2", "us-west3", "us-west4",
)  # fmt: skip


async def list_locations(context: Context, call: Call) -> Response:
    """All on one page."""
    return reply.json({"locations": [_document(call, region) for region in REGIONS]})


async def get(context: Context, call: Call) -> Response:
    return reply.json(_document(call, call.location))


def _document(call: Call, location: str) -> dict[str, Any]:
    return {
        "name": f"projects/{call.caller.project}/locations/{location}",
        "locationId": location,
        "labels": {"cloud.googleapis.com/region": location},
    }
