#!/usr/bin/env bash
# Makes helm/testdata/schemas anew, from the versions that cluster/go.mod and this file name.
set -euo pipefail
cd "$(dirname "$0")/cluster"
PROMETHEUS_OPERATOR=v0.85.0

folder() { GOFLAGS=-mod=mod go mod download -json "$1" | sed -nE 's/^\t"Dir": "(.*)",?$/\1/p'; }

kubernetes=$(folder "k8s.io/kubernetes@$(sed -nE 's/^.*k8s.io\/kubernetes (v[0-9.]+)$/\1/p' go.mod)")
operator=$(folder "github.com/prometheus-operator/prometheus-operator@$PROMETHEUS_OPERATOR")
crd=$operator/example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml
if [ "${1:-}" = --crd ]; then
	echo "$crd"
	exit
fi
go run ./schemas "$kubernetes/api/openapi-spec/swagger.json" "$crd" ../../testdata/schemas \
	ConfigMap.core.v1 PersistentVolumeClaim.core.v1 Pod.core.v1 Secret.core.v1 Service.core.v1 ServiceAccount.core.v1 \
	Deployment.apps.v1 StatefulSet.apps.v1 HorizontalPodAutoscaler.autoscaling.v2 PodDisruptionBudget.policy.v1 \
	Ingress.networking.v1 NetworkPolicy.networking.v1
