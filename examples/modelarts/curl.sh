#!/bin/sh
# A ModelArts training job by curl: a token, the job, its state, its log.
set -eu
id=${TURNOUT_KEY%%:*} secret=${TURNOUT_KEY#*:}

field() { python3 -c "import json, sys; print(json.load(sys.stdin)$1)"; }

token=$(curl -sSi "$TURNOUT_ENDPOINT/v3/auth/tokens" -H 'Content-Type: application/json' -d '{"auth": {"identity":
  {"methods": ["password"], "password": {"user": {"name": "'"$id"'", "password": "'"$secret"'", "domain": {"name": "any"}}}}}}' |
  tr -d '\r' | sed -n 's/^[Xx]-[Ss]ubject-[Tt]oken: //p')

call() { curl -sS --fail-with-body -H "X-Auth-Token: $token" -H 'Content-Type: application/json' "$@"; }

jobs=$TURNOUT_ENDPOINT/v2/default/training-jobs
job=$(call "$jobs" -d '{
  "kind": "job",
  "metadata": {"name": "example-'$$'"},
  "algorithm": {"engine": {"image_url": "any/image:1"}, "command": "echo hello from curl"},
  "spec": {"resource": {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 1}}
}' | field "['metadata']['id']")
echo "created $job"

phase=Creating
while case $phase in Creating | Pending | Running) true ;; *) false ;; esac; do
  sleep 0.5
  phase=$(call "$jobs/$job" | field "['status']['phase']")
done
call "$jobs/$job/tasks/worker-0/logs/preview" | field "['content']"
echo "$phase"
test "$phase" = Completed
