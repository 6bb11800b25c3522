"""The grammar that the filters of Google's APIs share (AIP-160).

    filter      expression or nothing
    expression  sequence {AND sequence}
    sequence    factor {factor}                    all of them, as with AND
    factor      term {OR term}                     OR binds tighter than AND
    term        {NOT | -} ( "(" expression ")" | restriction )

A value is a bare word or quoted text, in which a backslash escapes the next character.
"""

import re
from typing import Generic, NamedTuple, TypeVar

from turnout.errors import Invalid

T = TypeVar("T")

MAX_LENGTH = 20_000
MAX_DEPTH = 50

_SPACE = re.compile(r"\s*")
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BARE = re.compile(r"[^\s()\"'=!<>,]+")
_QUOTED = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


class Value(NamedTuple):
    text: str
    at: int


class Parser(Generic[T]):
    """Parses a filter in one pass. Subclasses build the result."""

    MAX_CONDITIONS = 500
    """The most conditions in one filter."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise Invalid(f"filter is longer than {MAX_LENGTH} characters.", field="filter")
        self._text = text
        self._at = 0
        self._depth = 0
        self._conditions = 0

    def all_of(self, parts: list[T]) -> T:
        """True if all parts are; an empty list is always true."""
        raise NotImplementedError

    def any_of(self, parts: list[T]) -> T:
        """True if at least one part is."""
        raise NotImplementedError

    def negation(self, part: T) -> T:
        raise NotImplementedError

    def restriction(self) -> T:
        """Parse one comparison and the white space after it."""
        raise NotImplementedError

    def parse(self) -> T:
        self._skip()
        if self._done():
            return self.all_of([])
        query = self._expression()
        if not self._done():
            raise self._invalid(
                "this ) has no matching (" if self._next(")") else "expected AND, OR or the end of the filter"
            )
        return query

    def _expression(self) -> T:
        parts = [self._sequence()]
        while self._keyword("AND"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else self.all_of(parts)

    def _sequence(self) -> T:
        parts = [self._factor()]
        while not (self._done() or self._next(")") or self._peek("AND") or self._peek("OR")):
            parts.append(self._factor())
        return parts[0] if len(parts) == 1 else self.all_of(parts)

    def _factor(self) -> T:
        parts = [self._term()]
        while self._keyword("OR"):
            parts.append(self._term())
        return parts[0] if len(parts) == 1 else self.any_of(parts)

    def _term(self) -> T:
        negated = False
        while self._keyword("NOT") or self._take("-"):
            negated = not negated
        query = self._group() if self._take("(") else self._condition()
        return self.negation(query) if negated else query

    def _condition(self) -> T:
        self._conditions += 1
        if self._conditions > self.MAX_CONDITIONS:
            raise self._invalid(f"there are more than {self.MAX_CONDITIONS} conditions")
        return self.restriction()

    def _group(self) -> T:
        start = self._at - 1
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._invalid(f"more than {MAX_DEPTH} parentheses are open")
        query = self._expression()
        if not self._take(")"):
            raise invalid(start, "this ( is not closed")
        self._depth -= 1
        return query

    def _value(self) -> Value:
        at = self._at
        quoted = self._quoted()
        if quoted is not None:
            return Value(quoted, at)
        bare = self._match(_BARE)
        if bare is None:
            quote = self._text[at : at + 1]
            raise self._invalid(
                f"this {quote} is not closed" if quote in ('"', "'") and quote else "expected a value"
            )
        return Value(bare[0], at)

    def _quoted(self) -> str | None:
        match = self._match(_QUOTED)
        if match is None:
            return None
        return _ESCAPE.sub(r"\1", match[1] if match[1] is not None else match[2])

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self._text, self._at)
        if match:
            self._at = match.end()
        return match

    def _skip(self) -> None:
        self._match(_SPACE)

    def _done(self) -> bool:
        return self._at == len(self._text)

    def _next(self, character: str) -> bool:
        return self._text.startswith(character, self._at)

    def _take(self, character: str) -> bool:
        if not self._next(character):
            return False
        self._at += 1
        self._skip()
        return True

    def _peek(self, word: str) -> bool:
        match = WORD.match(self._text, self._at)
        return match is not None and match[0].upper() == word

    def _keyword(self, word: str) -> bool:
        if not self._peek(word):
            return False
        self._at += len(word)
        self._skip()
        return True

    def _invalid(self, text: str) -> Invalid:
        return invalid(self._at, text)


def invalid(at: int, text: str) -> Invalid:
    return Invalid(f"filter, at character {at + 1}: {text}.", field="filter")
