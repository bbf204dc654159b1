#!/bin/sh
# Makes the Secrets that the manifests name: certificates of queue and workers, and NATS' user and password.
#
#   manifests/secrets.sh [namespace]           into the cluster (default: headway)
#   DRY_RUN=1 manifests/secrets.sh             only shown
#
# Run it again to renew the certificates, then restart the pods. A password of your own: NATS_USER, NATS_PASSWORD.
set -eu
namespace=${1:-headway}
days=${DAYS:-3650}
user=${NATS_USER:-headway}
# A letter first: the server would take "12e3" for a number.
password=${NATS_PASSWORD:-p$(openssl rand -hex 16)}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

create() {
  kubectl -n "$namespace" create secret generic "$@" --dry-run=client -o yaml | apply
}
apply() {
  if [ -n "${DRY_RUN:-}" ]; then cat; echo ---; else kubectl -n "$namespace" apply -f -; fi
}
key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"; }

key ca.key 2>/dev/null
openssl req -x509 -new -key ca.key -days "$days" -subj "/CN=headway authority" -out ca.crt
certificate() { # name, DNS names
  key tls.key 2>/dev/null
  printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\nbasicConstraints=CA:FALSE\n' "$2" > extensions
  openssl req -new -key tls.key -subj "/CN=$1" -out request
  openssl x509 -req -in request -CA ca.crt -CAkey ca.key -CAcreateserial -days "$days" -extfile extensions \
    -out tls.crt 2>/dev/null
  create "$1-tls" --from-file=ca.crt --from-file=tls.crt --from-file=tls.key
}
certificate headway-queue \
  "DNS:headway-queue,DNS:headway-queue.$namespace,DNS:headway-queue.$namespace.svc"
certificate headway-worker "DNS:headway-worker"
create headway-nats "--from-literal=user=$user" "--from-literal=password=$password"
