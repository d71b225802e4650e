"""Compare a program's output with the text of a file; prints one JSON object.

python same_text.py EXPECTED PROGRAM ARGUMENTS...
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    expected = Path(sys.argv[1]).read_text()
    command = [sys.executable, *sys.argv[2:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    same = done.stdout == expected
    found = {"same": same} if same else {"same": False, "error": done.stderr[-500:] or done.stdout}
    print(json.dumps(found))
    sys.exit(0 if same else 1)
