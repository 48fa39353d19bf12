#!/usr/bin/env bash
# Installs the chart for real: etcd, API server, controller manager and scheduler of Kubernetes on loopback, two
# simulated nodes, then helm install --wait, test, upgrade, a rollout that must not come through, rollback, uninstall.
# No container runs, so no image is needed; what admission, defaulting, quotas and controllers do is real.
#
#   helm/test/install.sh            needs openssl, curl, python3 and helm (HELM=path)
#
# The first run builds Kubernetes, which takes some minutes; the binary is kept in TOOLS.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
chart=$here/../remora
TOOLS=${TOOLS:-$(go env GOPATH)/remora-tools}
HELM=${HELM:-helm}
for need in "$HELM" openssl curl python3; do
	command -v "$need" >/dev/null || { echo "missing: $need" >&2; exit 1; }
done

version=$(sed -nE 's/^.*k8s.io\/kubernetes (v[0-9.]+)$/\1/p' "$here/cluster/go.mod")
# Named by what it is built from, so that a change of either is seen.
cluster=$TOOLS/cluster-$version-$(cat "$here"/cluster/*.go "$here/cluster/go.mod" | sha256sum | cut -c1-12)
if [ ! -x "$cluster" ]; then
	echo "build Kubernetes $version, some minutes, once"
	mkdir -p "$TOOLS"
	minor=${version#v*.}
	stamp=k8s.io/component-base/version
	# helm reads the version from the server.
	(cd "$here/cluster" && CGO_ENABLED=0 go build -trimpath -o "$cluster" -ldflags \
		"-s -w -X $stamp.gitVersion=$version -X $stamp.gitMajor=1 -X $stamp.gitMinor=${minor%%.*} -X $stamp.gitCommit=unknown" .)
fi

dir=$(mktemp -d)
pids=()
stop() {
	code=$?
	# Nothing is to be saved, and an API server whose etcd has gone takes minutes to end by itself.
	for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
	for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
	if [ "$code" != 0 ]; then
		tail -n 5 "$dir"/*.log >&2 || true
	fi
	rm -rf "$dir"
}
trap stop EXIT
start() {
	local name=$1
	shift
	"$@" >"$dir/$name.log" 2>&1 &
	pids+=($!)
}
step() { printf '\n== %s (%ss)\n' "$*" "$SECONDS"; }

# Ports that were free a moment ago.
ports=()
while read -r port; do ports+=("$port"); done < <(python3 - <<'P'
import socket
s = [socket.socket() for _ in range(3)]
for x in s:
    x.bind(("127.0.0.1", 0))
    print(x.getsockname()[1])
P
)
etcd_port=${ports[0]} peer_port=${ports[1]} api_port=${ports[2]}
server=https://127.0.0.1:$api_port
token=$(openssl rand -hex 16)

step "control plane"
openssl genrsa -out "$dir/sa.key" 2048 2>/dev/null
echo "$token,admin,admin,system:masters" >"$dir/tokens.csv"
cat >"$dir/kubeconfig" <<K
apiVersion: v1
kind: Config
current-context: it
contexts: [{name: it, context: {cluster: it, user: it}}]
clusters: [{name: it, cluster: {server: "$server", insecure-skip-tls-verify: true}}]
users: [{name: it, user: {token: $token}}]
K
chmod 600 "$dir/kubeconfig" "$dir/tokens.csv"
export KUBECONFIG=$dir/kubeconfig HELM_CACHE_HOME=$dir/h1 HELM_CONFIG_HOME=$dir/h2 HELM_DATA_HOME=$dir/h3
start etcd "$cluster" etcd --data-dir "$dir/etcd" --listen-client-urls "http://127.0.0.1:$etcd_port" \
	--advertise-client-urls "http://127.0.0.1:$etcd_port" --listen-peer-urls "http://127.0.0.1:$peer_port" \
	--initial-advertise-peer-urls "http://127.0.0.1:$peer_port" --initial-cluster "default=http://127.0.0.1:$peer_port"
start apiserver "$cluster" apiserver --etcd-servers "http://127.0.0.1:$etcd_port" --bind-address 127.0.0.1 \
	--advertise-address 127.0.0.1 --endpoint-reconciler-type none --secure-port "$api_port" --cert-dir "$dir/certs" \
	--service-account-issuer https://kubernetes.default.svc --service-account-key-file "$dir/sa.key" \
	--service-account-signing-key-file "$dir/sa.key" --token-auth-file "$dir/tokens.csv" \
	--authorization-mode RBAC --service-cluster-ip-range 10.96.0.0/16

api() { # METHOD PATH [DATA]
	local data=()
	if [ $# -gt 2 ]; then data=(-H "Content-Type: ${TYPE:-application/json}" --data-binary "$3"); fi
	curl -ksS --fail-with-body -H "Authorization: Bearer $token" -X "$1" "${data[@]}" "$server$2"
}
# until_true SECONDS COMMAND...: polls, for there is nothing to be told by.
until_true() {
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		if [ "$SECONDS" -gt "$end" ]; then
			echo "not within its time: $*" >&2
			return 1
		fi
		sleep 0.3
	done
}
until_true 120 api GET /readyz
start controllers "$cluster" controllers --kubeconfig "$KUBECONFIG" --leader-elect=false --secure-port 0 \
	--service-account-private-key-file "$dir/sa.key" --use-service-account-credentials=false \
	--controllers '*,-bootstrap-signer-controller,-token-cleaner-controller'
start scheduler "$cluster" scheduler --kubeconfig "$KUBECONFIG" --leader-elect=false --secure-port 0
start node-a "$cluster" node "$KUBECONFIG" node-a
start node-b "$cluster" node "$KUBECONFIG" node-b

# The ServiceMonitor is a resource of the Prometheus operator.
TYPE=application/yaml api POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions \
	"@$("$here/schemas.sh" --crd)" >/dev/null
until_true 60 api GET /apis/monitoring.coreos.com/v1/servicemonitors
until_true 60 api GET /api/v1/nodes/node-b
api POST /api/v1/namespaces '{"metadata":{"name":"llm","labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}' >/dev/null
until_true 60 api GET /api/v1/namespaces/llm/serviceaccounts/default

deployment=/apis/apps/v1/namespaces/llm/deployments/r-remora
field() { api GET "$1" | tr -d ' \n' | grep -oE "\"$2\":\"?[^,}\"]+" | head -1 | sed -E 's/.*:"?//'; }
expect() { # WHAT WANT HAVE
	if [ "$2" != "$3" ]; then
		echo "$1: want $2, have $3" >&2
		return 1
	fi
	echo "$1: $3"
}
helm() { command "$HELM" -n llm "$@"; } # command: HELM may be "helm", which is this function
ready() { expect "ready replicas" "$1" "$(field $deployment readyReplicas)"; }
secret=/api/v1/namespaces/llm/secrets/plain-remora-redis
budget=/apis/policy/v1/namespaces/llm/poddisruptionbudgets/r-remora
# Nothing here makes volumes.
trial=(--set redis.persistence.enabled=false -f "$chart/ci/2-trial-values.yaml")

step "install with next to no values; a password that was made up is kept over upgrades"
helm install plain "$chart" --wait --timeout 90s --set redis.enabled=true --set redis.persistence.enabled=false >/dev/null
password=$(field "$secret" password)
helm upgrade plain "$chart" --wait --timeout 90s --set redis.enabled=true --set redis.persistence.enabled=false >/dev/null
expect "password kept" yes "$([ "$password" = "$(field "$secret" password)" ] && echo yes)"
helm uninstall plain --wait --timeout 90s

step "install: two replicas and the chart's Redis"
helm install r "$chart" --wait --timeout 90s "${trial[@]}" >/dev/null
ready 2

step "helm test"
helm test r --timeout 60s | grep Phase

step "upgrade: three replicas, metrics, disruption budget, ingress"
helm upgrade r "$chart" --wait --timeout 90s "${trial[@]}" --set replicaCount=3 --set serviceMonitor.enabled=true \
	--set podDisruptionBudget.enabled=true --set ingress.enabled=true --set config.log.level=debug >/dev/null
ready 3
allowed() { [ "$(field "$budget" disruptionsAllowed)" = 1 ]; }
until_true 30 allowed
api GET /apis/monitoring.coreos.com/v1/namespaces/llm/servicemonitors/r-remora >/dev/null

step "an upgrade whose pods cannot start leaves the old ones serving; rollback"
if helm upgrade r "$chart" --wait --timeout 10s "${trial[@]}" --set replicaCount=3 --set existingSecret=missing >/dev/null 2>&1; then
	echo "an upgrade without its secret came through" >&2
	exit 1
fi
ready 3
helm rollback r 2 --wait --timeout 90s >/dev/null
ready 3

step "uninstall leaves nothing behind"
helm uninstall r --wait --timeout 90s
left() { api GET "$1" | grep -cE '"name": ?"(r|plain)-remora' || true; }
for kind in /api/v1/namespaces/llm/{pods,services,secrets,configmaps,serviceaccounts,persistentvolumeclaims} \
	/apis/apps/v1/namespaces/llm/{deployments,replicasets,statefulsets} /apis/policy/v1/namespaces/llm/poddisruptionbudgets \
	/apis/networking.k8s.io/v1/namespaces/llm/{ingresses,networkpolicies}; do
	gone() { [ "$(left "$kind")" = 0 ]; } # the collector of what the deployment owned takes a moment
	until_true 60 gone
done
step "ok"
