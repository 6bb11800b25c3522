"""Patterns of `matchGlob`: `*`, `**`, `?`, `[a-z]`, `{a,b}`, and `\\`, which escapes a character.

A key is matched in one pass, whatever the pattern, so that no pattern can occupy a thread for long.
"""

from collections.abc import Callable
from itertools import pairwise

from turnout.errors import Invalid

_LONGEST = 1024
_MOST_ALTERNATIVES = 100
_MOST_STEPS = 10_000
"""The maximum number of cached steps."""

_SPECIAL = frozenset("*?[{\\")

States = frozenset[tuple[int, int]]
"""(alternative, position in it) for each way in which the pattern can match the key so far."""


class _PatternToken:
    def __init__(self, fits: Callable[[str], bool], repeats: bool = False, directories: bool = False) -> None:
        self.fits = fits
        self.repeats = repeats
        """It matches any number of characters."""
        self.directories = directories
        """It matches nothing, or a path that ends with a slash: `**/`."""


class Glob:
    def __init__(self, pattern: str) -> None:
        """Raises Invalid."""
        if len(pattern) > _LONGEST:
            raise _invalid(pattern, f"is longer than {_LONGEST} characters")
        self.prefix = _literal_prefix(pattern)
        """Every key that matches begins with it."""
        self._alternatives = [_tokens(alternative, pattern) for alternative in _expand(pattern, pattern)]
        starts = range(len(self._alternatives))
        self._start = frozenset(state for index in starts for state in self._closure(index, 0))
        self._steps: dict[tuple[States, str], States] = {}

    def matches(self, key: str) -> bool:
        states = self._start
        for character in key:
            if not states:
                return False
            step = (states, character)
            if step not in self._steps:
                if len(self._steps) >= _MOST_STEPS:
                    self._steps.clear()
                self._steps[step] = self._advance(states, character)
            states = self._steps[step]
        return any(at == len(self._alternatives[index]) for index, at in states)

    def _advance(self, states: States, character: str) -> States:
        found: set[tuple[int, int]] = set()
        for index, at in states:
            if at == len(self._alternatives[index]):
                continue
            token = self._alternatives[index][at]
            if token.directories and character != "/":
                found.add((index, at))
            elif token.repeats and token.fits(character):
                found |= self._closure(index, at)
            elif token.fits(character):
                found |= self._closure(index, at + 1)
        return frozenset(found)

    def _closure(self, index: int, at: int) -> set[tuple[int, int]]:
        """This position, and those after tokens that may match nothing."""
        tokens, found = self._alternatives[index], {(index, at)}
        while at < len(tokens) and tokens[at].repeats:
            at += 1
            found.add((index, at))
        return found


def _literal_prefix(pattern: str) -> str:
    end = next((at for at, character in enumerate(pattern) if character in _SPECIAL), len(pattern))
    return pattern[:end]


def _expand(pattern: str, whole: str) -> list[str]:
    """`a{b,c{d,e}}` as `ab`, `acd`, `ace`."""
    begin, end, commas = _braces(pattern, whole)
    if begin < 0:
        return [pattern]
    edges = [begin, *commas, end]
    found: list[str] = []
    for left, right in pairwise(edges):
        found += _expand(pattern[:begin] + pattern[left + 1 : right] + pattern[end + 1 :], whole)
        if len(found) > _MOST_ALTERNATIVES:
            raise _invalid(whole, f"has more than {_MOST_ALTERNATIVES} alternatives")
    return found


def _braces(pattern: str, whole: str) -> tuple[int, int, list[int]]:
    """The positions of the first pair of braces and of its commas. -1 if there is none."""
    begin, depth, at = -1, 0, 0
    commas: list[int] = []
    while at < len(pattern):
        match pattern[at]:
            case "\\":
                at += 1
            case "[":
                at = _class_end(pattern, at, whole)
            case "{":
                begin, depth = (at, 1) if not depth else (begin, depth + 1)
            case "," if depth == 1:
                commas.append(at)
            case "}" if depth:
                depth -= 1
                if not depth:
                    return begin, at, commas
        at += 1
    if depth:
        raise _invalid(whole, "has a { that is not closed")
    return -1, -1, []


def _tokens(pattern: str, whole: str) -> list[_PatternToken]:
    tokens: list[_PatternToken] = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if pattern.startswith("**/", at) and (at == 0 or pattern[at - 1] == "/"):
            tokens.append(_PatternToken(lambda letter: True, repeats=True, directories=True))
            at += 2
        elif pattern.startswith("**", at):
            tokens.append(_PatternToken(lambda letter: True, repeats=True))
            at += 1
        elif character == "*":
            tokens.append(_PatternToken(lambda letter: letter != "/", repeats=True))
        elif character == "?":
            tokens.append(_PatternToken(lambda letter: letter != "/"))
        elif character == "[":
            end = _class_end(pattern, at, whole)
            tokens.append(_PatternToken(_class(pattern[at + 1 : end], whole)))
            at = end
        else:
            if character == "\\":
                at += 1
                if at == len(pattern):
                    raise _invalid(whole, "ends with a backslash")
            tokens.append(_PatternToken(lambda letter, wanted=pattern[at]: letter == wanted))
        at += 1
    return tokens


def _class_end(pattern: str, at: int, whole: str) -> int:
    first = at + 2 if pattern[at + 1 : at + 2] in ("!", "^") else at + 1
    end = pattern.find("]", first + 1)
    if end < 0:
        raise _invalid(whole, "has a [ that is not closed")
    return end


def _class(text: str, whole: str) -> Callable[[str], bool]:
    outside = text[0] in "!^"
    text = text[1:] if outside else text
    ranges: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        last = text[at + 2] if text[at + 1 : at + 2] == "-" and at + 2 < len(text) else text[at]
        if last < text[at]:
            raise _invalid(whole, f"has the range {text[at]}-{last}, which is empty")
        ranges.append((text[at], last))
        at += 3 if text[at + 1 : at + 2] == "-" and at + 2 < len(text) else 1
    return lambda letter: letter != "/" and outside != any(low <= letter <= high for low, high in ranges)


def _invalid(pattern: str, why: str) -> Invalid:
    return Invalid(f"matchGlob: {pattern[:100]!r} {why}", field="matchGlob")
