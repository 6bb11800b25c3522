#!/bin/sh
# A Vertex AI custom job by gcloud, with its log.
set -eu
token=$(mktemp)
trap 'rm -f "$token"' EXIT
turnout token > "$token"
export CLOUDSDK_AUTH_ACCESS_TOKEN_FILE="$token" CLOUDSDK_CORE_PROJECT=default CLOUDSDK_CORE_DISABLE_PROMPTS=1
export CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM="$TURNOUT_ENDPOINT/"
export CLOUDSDK_API_ENDPOINT_OVERRIDES_LOGGING="$TURNOUT_ENDPOINT/"

job=$(gcloud ai custom-jobs create --region=us-central1 --display-name=example --format='value(name)' \
  --worker-pool-spec=machine-type=n4-highcpu-2,container-image-uri=python:3.11 --command=echo --args='hello from gcloud')
gcloud ai custom-jobs stream-logs "${job##*/}" --region=us-central1 --polling-interval=1
gcloud ai custom-jobs describe "${job##*/}" --region=us-central1 --format='value(state)'
