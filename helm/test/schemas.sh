#!/usr/bin/env bash
# Makes helm/testdata/schemas anew, from the versions that cluster/go.mod and this file name.
set -euo pipefail
cd "$(dirname "$0")/cluster"
PROMETHEUS_OPERATOR=v0.85.0
GATEWAY_API=v1.3.0

folder() { GOFLAGS=-mod=mod go mod download -json "$1" | sed -nE 's/^\t"Dir": "(.*)",?$/\1/p'; }

kubernetes=$(folder "k8s.io/kubernetes@$(sed -nE 's/^.*k8s.io\/kubernetes (v[0-9.]+)$/\1/p' go.mod)")
operator=$(folder "github.com/prometheus-operator/prometheus-operator@$PROMETHEUS_OPERATOR")
crds=$operator/example/prometheus-operator-crd/monitoring.coreos.com
crd=${crds}_servicemonitors.yaml
if [ "${1:-}" = --crd ]; then
	echo "$crd"
	exit
fi
gateway=$(folder "sigs.k8s.io/gateway-api@$GATEWAY_API")/config/crd/standard/gateway.networking.k8s.io_httproutes.yaml
go run ./schemas "$kubernetes/api/openapi-spec/swagger.json" "$crd,${crds}_prometheusrules.yaml,$gateway" ../../testdata/schemas \
	ConfigMap.core.v1 PersistentVolumeClaim.core.v1 Pod.core.v1 Secret.core.v1 Service.core.v1 ServiceAccount.core.v1 \
	Deployment.apps.v1 StatefulSet.apps.v1 HorizontalPodAutoscaler.autoscaling.v2 PodDisruptionBudget.policy.v1 \
	Ingress.networking.v1 NetworkPolicy.networking.v1
