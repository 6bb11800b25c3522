"""Parses the Authorization header of a signed request. AWS, Tencent and Huawei use the same form."""

import re
from typing import NamedTuple

SHA256_HEX = re.compile("[0-9a-f]{64}")


class Authorization(NamedTuple):
    credential: str
    signed: str
    """The names of the signed headers, separated by semicolons."""
    signature: str


def parse_authorization(text: str, algorithm: str, credential: str = "Credential") -> Authorization | None:
    """Parses `<algorithm> <credential>=…, SignedHeaders=…, Signature=…`. None for anything else."""
    scheme, _, rest = text.strip().partition(" ")
    if scheme != algorithm:
        return None
    pairs = (part.strip().partition("=") for part in rest.split(","))
    found = {name: value for name, _, value in pairs}
    values = [found.get(name, "") for name in (credential, "SignedHeaders", "Signature")]
    return Authorization(*values) if all(values) else None
