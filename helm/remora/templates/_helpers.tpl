{{- define "remora.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- /* 50 characters leave room for what is appended. */}}
{{- define "remora.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{- $name := include "remora.name" . -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{- define "remora.selector" -}}
app.kubernetes.io/name: {{ include "remora.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "remora.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "remora.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "remora.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{- define "remora.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "remora.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end }}

{{- /* Where the URL of the store comes from: redis, secret, url, or bolt. */}}
{{- define "remora.storeKind" -}}
{{- if .Values.redis.enabled }}redis
{{- else if .Values.store.existingSecret }}secret
{{- else if .Values.store.url }}url
{{- else }}bolt
{{- end -}}
{{- end }}

{{- /* Whether several nodes can mount /data at once. An existing claim is taken for one that they can. */}}
{{- define "remora.sharedData" -}}
{{- with .Values.persistence -}}
{{- if or (not .enabled) .existingClaim (has "ReadWriteMany" .accessModes) }}yes{{ end -}}
{{- end -}}
{{- end }}

{{- /* A secret that nobody gave: that of the last installation, or a new one. Takes root, secret and key. */}}
{{- define "remora.madeUp" -}}
{{- $root := .root -}}
{{- $old := lookup "v1" "Secret" $root.Release.Namespace .secret -}}
{{- if and $old $old.data (index $old.data .key) -}}
{{ index $old.data .key | b64dec }}
{{- else -}}
{{- /* Several templates ask: all of one rendering must get the same. */}}
{{- $name := printf "made up %s %s" .secret .key -}}
{{- if not (hasKey $root.Release $name) }}{{ $_ := set $root.Release $name (randAlphaNum 32) }}{{ end -}}
{{ get $root.Release $name }}
{{- end -}}
{{- end }}

{{- define "remora.redisPassword" -}}
{{- $secret := printf "%s-redis" (include "remora.fullname" .) -}}
{{- .Values.redis.password | default (include "remora.madeUp" (dict "root" . "secret" $secret "key" "password")) -}}
{{- end }}

{{- define "remora.adminToken" -}}
{{- $secret := include "remora.fullname" . -}}
{{- .Values.admin.token | default (include "remora.madeUp" (dict "root" . "secret" $secret "key" "REMORA_SERVER_ADMIN_TOKEN")) -}}
{{- end }}

{{- /* Whether the chart has a Secret of its own. */}}
{{- define "remora.ownSecret" -}}
{{- if or .Values.secretEnv (not .Values.admin.existingSecret) (has (include "remora.storeKind" .) (list "url" "redis")) }}yes{{ end -}}
{{- end }}

{{- /* config.yaml: what the values say, and what follows from other values. */}}
{{- define "remora.config" -}}
{{- $server := dict "listen" ":8080" "admin_listen" ":9090" "shutdown_grace" (printf "%ds" (int .Values.shutdownGraceSeconds)) -}}
{{- if .Values.tls.secretName -}}
{{- $_ := merge $server (dict "tls_cert" "/etc/remora/tls/tls.crt" "tls_key" "/etc/remora/tls/tls.key") -}}
{{- end -}}
{{- $store := dict "spool" (dict "dir" "/data/spool") -}}
{{- if eq (include "remora.storeKind" .) "bolt" -}}
{{- $_ := set $store "url" "bolt:/data/remora.db" -}}
{{- end -}}
{{- /* merge prefers its first argument: the spool's folder is the operator's to move, the addresses are not. */}}
{{- $own := dict "server" $server -}}
{{- $config := deepCopy (default dict .Values.config) -}}
{{- /* Helm reads YAML 1.1, in which the key `on` is true. */}}
{{- range $config.providers -}}
{{- if hasKey (default dict .retry) "true" }}{{ $_ := set .retry "on" (get .retry "true") }}{{ $_ := unset .retry "true" }}{{ end -}}
{{- end -}}
{{- toYaml (merge $own $config (dict "store" $store)) }}
{{- end }}

{{- /* Fails for what would start but not do what was meant. */}}
{{- define "remora.validate" -}}
{{- $v := .Values -}}
{{- range list "listen" "admin_listen" "admin_token" "shutdown_delay" "shutdown_grace" "tls_cert" "tls_key" -}}
{{- if hasKey (default dict ($v.config).server) . -}}
{{- fail (printf "config.server.%s: the chart sets it; see the values admin, preStopSeconds, shutdownGraceSeconds and tls" .) -}}
{{- end -}}
{{- end -}}
{{- if hasKey (default dict ($v.config).store) "url" -}}
{{- fail "config.store.url: use store.url or store.existingSecret, which keep it out of the ConfigMap" -}}
{{- end -}}
{{- $stores := list -}}
{{- if $v.redis.enabled }}{{ $stores = append $stores "redis.enabled" }}{{ end -}}
{{- if $v.store.url }}{{ $stores = append $stores "store.url" }}{{ end -}}
{{- if $v.store.existingSecret }}{{ $stores = append $stores "store.existingSecret" }}{{ end -}}
{{- if gt (len $stores) 1 }}{{ fail (printf "%s: want one of them" (join ", " $stores)) }}{{ end -}}
{{- if and $v.admin.token $v.admin.existingSecret }}{{ fail "admin.token, admin.existingSecret: want one of them" }}{{ end -}}
{{- if and $v.trustedCA.configMap $v.trustedCA.secret }}{{ fail "trustedCA.configMap, trustedCA.secret: want one of them" }}{{ end -}}
{{- if hasKey $v.secretEnv "REMORA_STORE_URL" }}{{ fail "secretEnv.REMORA_STORE_URL: use store.url" }}{{ end -}}
{{- if hasKey $v.secretEnv "REMORA_SERVER_ADMIN_TOKEN" }}{{ fail "secretEnv.REMORA_SERVER_ADMIN_TOKEN: use admin.token" }}{{ end -}}
{{- $many := or $v.autoscaling.enabled (gt (int $v.replicaCount) 1) -}}
{{- if and $many (eq (include "remora.storeKind" .) "bolt") -}}
{{- fail "replicaCount, autoscaling.enabled: several replicas need a Redis: store.url, store.existingSecret or redis.enabled" -}}
{{- end -}}
{{- if and $many (not (include "remora.sharedData" .)) -}}
{{- fail "persistence.accessModes: several replicas need ReadWriteMany" -}}
{{- end -}}
{{- if and $v.autoscaling.enabled (lt (int $v.autoscaling.maxReplicas) (int $v.autoscaling.minReplicas)) -}}
{{- fail "autoscaling.maxReplicas: want minReplicas or more" -}}
{{- end -}}
{{- if and $v.autoscaling.enabled (not $v.autoscaling.targetCPU) (not $v.autoscaling.targetMemory) -}}
{{- fail "autoscaling.targetCPU, autoscaling.targetMemory: want one of them above 0" -}}
{{- end -}}
{{- end }}

{{- /* Nine tenths of the memory limit where that is in Mi or Gi, as GOMEMLIMIT spells it; else nothing. */}}
{{- define "remora.memoryTarget" -}}
{{- $limit := toString (dig "limits" "memory" "" (default dict .Values.resources)) -}}
{{- if regexMatch "^[0-9]+[MG]i$" $limit -}}
{{- $n := atoi (regexFind "^[0-9]+" $limit) -}}
{{- printf "%dMiB" (div (mul $n (ternary 1024 1 (hasSuffix "Gi" $limit)) 9) 10) -}}
{{- end -}}
{{- end }}
