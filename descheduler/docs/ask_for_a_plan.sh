#!/bin/sh
# Have a policy's plan made, without a move, and print it: set BERTH_URL and BERTH_TOKEN, and name the policy.
set -eu

# Waits as Retry-After says and tries again; BERTH_CA names the CA of the certificate.
ask() {
  curl --silent --show-error --fail --retry 5 ${BERTH_CA:+--cacert "$BERTH_CA"} \
    --header "Authorization: Bearer $BERTH_TOKEN" --header "Content-Type: application/json" "$@"
}

field() {
  sed "s/.*\"$1\":\"\([^\"]*\)\".*/\1/"
}

name=$(ask --header "Idempotency-Key: $$-$(date +%s)" --data "{\"policy\": \"$1\", \"mode\": \"Plan\"}" \
  "$BERTH_URL/v1/runs" | field plan)
plan=$(ask "$BERTH_URL/v1/plans/$name")
while [ "$(printf %s "$plan" | field phase)" = Requested ]; do
  sleep 1
  plan=$(ask "$BERTH_URL/v1/plans/$name")
done
printf '%s\n' "$plan"
