"""References to other variables in a variable's value, as in Kubernetes.

`$(NAME)` becomes the value of NAME, or stays if there is no such variable; `$$` is a literal `$`.
"""

import re
from collections.abc import Iterable, Mapping

_PART = re.compile(r"\$\$|\$\(([^()]*)\)")


def expand(text: str, known: Mapping[str, str]) -> str:
    return _PART.sub(lambda match: "$" if match[1] is None else known.get(match[1], match[0]), text)


def expand_late(env: Mapping[str, str], late: Iterable[str], known: Mapping[str, str]) -> dict[str, str]:
    """Expands these variables in order: each may refer to those before it."""
    expanded: dict[str, str] = {}
    for name in late:
        expanded[name] = expand(env[name], {**known, **expanded})
    return {**env, **expanded}


def expand_partly(text: str, known: Mapping[str, str], later: frozenset[str]) -> str:
    """Expands all references but those to the variables in `later`, which `expand` resolves afterwards."""

    def part(match: re.Match[str]) -> str:
        if match[1] is None:
            return "$$"
        if match[1] in later:
            return match[0]
        return _escape(known.get(match[1], match[0]))

    pieces: list[str] = []
    end = 0
    for match in _PART.finditer(text):
        pieces += (_escape(text[end : match.start()]), part(match))
        end = match.end()
    return "".join(pieces) + _escape(text[end:])


def refers(text: str, names: frozenset[str]) -> bool:
    """Whether the value refers to one of these."""
    return any(match[1] in names for match in _PART.finditer(text))


def _escape(text: str) -> str:
    return text.replace("$", "$$")
