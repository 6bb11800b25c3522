#!/bin/sh
# A TI-A job by tictl. Its program is copied into a bucket, which the job mounts at /data.
set -eu
name=example-$$
program=$(mktemp)
cat > "$program" <<'PYTHON'
import os, sys
print("hello from", os.environ["HOSTNAME"], "with", sys.argv[1:])
open("/data/result.txt", "w").write("42\n")
PYTHON
turnout cp "$program" "cos://$name/train.py"
rm "$program"

tictl job create "$name" --packagedir "cos://$name-1.any/:/data" --command "python3 /data/train.py --epochs 3" --wait
tictl logs "$name" --no-time-prefix
turnout cp "cos://$name/result.txt" -
