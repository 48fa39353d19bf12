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
{{- with include "remora.storeProblem" $v.store.url }}{{ fail (printf "store.url: %s" .) }}{{ end -}}
{{- range $key, $url := include "remora.urls" . | fromYaml -}}
{{- with include "remora.endpointProblem" $url }}{{ fail (printf "%s: %s" $key .) }}{{ end -}}
{{- end -}}
{{- include "remora.validateVariables" . -}}
{{- include "remora.validateSpool" . -}}
{{- $own := merge (include "remora.labels" . | fromYaml) (dict "app.kubernetes.io/component" "") -}}
{{- range $key, $_ := $v.podLabels -}}
{{- if hasKey $own $key }}{{ fail (printf "podLabels: the chart sets %s itself" $key) }}{{ end -}}
{{- end -}}
{{- range $key, $_ := $v.serviceMonitor.labels -}}
{{- if hasKey $own $key }}{{ fail (printf "serviceMonitor.labels: the chart sets %s itself" $key) }}{{ end -}}
{{- end -}}
{{- range $key, $_ := $v.prometheusRule.labels -}}
{{- if hasKey $own $key }}{{ fail (printf "prometheusRule.labels: the chart sets %s itself" $key) }}{{ end -}}
{{- end -}}
{{- range $key, $_ := $v.dashboard.labels -}}
{{- if hasKey $own $key }}{{ fail (printf "dashboard.labels: the chart sets %s itself" $key) }}{{ end -}}
{{- end -}}
{{- if and $v.httpRoute.enabled (not $v.httpRoute.parentRefs) -}}
{{- fail "httpRoute.parentRefs: want the Gateway, such as [{name: public, namespace: gateways}]" -}}
{{- end -}}
{{- range list "checksum/config" "checksum/secret" "kubectl.kubernetes.io/default-container" -}}
{{- if hasKey (default dict $v.podAnnotations) . }}{{ fail (printf "podAnnotations: the chart sets %s itself" .) }}{{ end -}}
{{- end -}}
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

{{- /* What is wrong with the URL of the store, without a part of it: it may hold a password. */}}
{{- define "remora.storeProblem" -}}
{{- $host := include "remora.hostPattern" . -}}
{{- if or (not .) (contains "${" .) -}}
{{- else if not (regexMatch `^rediss?(\+(sentinel|cluster))?://` .) -}}
want redis://, redis+sentinel:// or redis+cluster://, with rediss for TLS
{{- else if regexMatch `^[^:]*://[^@/?]*/[^?]*@` . -}}
special characters of the password have to be percent-encoded: / is %2F, ? is %3F, # is %23
{{- else if not (regexMatch (printf `^[^:]*://([^/?]*@)?%s(,%s)*([/?].*)?$` $host $host) .) -}}
want [user:password@]host[:port] after the slashes, with a port from 1 to 65535, and special characters of the password percent-encoded
{{- end -}}
{{- end }}

{{- /* What is wrong with the URL of an upstream or a collector. */}}
{{- define "remora.endpointProblem" -}}
{{- if and . (not (contains "${" .)) (not (regexMatch (printf `^https?://%s(/\S*)?$` (include "remora.hostPattern" .)) .)) -}}
want a URL such as http://host:4318/path, with a name or an IP address, and a port from 1 to 65535 or none
{{- end -}}
{{- end }}

{{- /* A regular expression for a host, with or without a port. */}}
{{- define "remora.hostPattern" -}}
{{- $name := `[^\s/?#@:,]*[^\s/?#@:.0-9,][^\s/?#@:,]*` -}}
{{- $byte := `(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])` -}}
{{- $port := `([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])` -}}
{{- printf `(%s|(%s\.){3}%s|\[[0-9a-fA-F:.]+\])(:%s)?` $name $byte $byte $port -}}
{{- end }}

{{- /* The URLs that pods connect to, by their values; empty ones too. */}}
{{- define "remora.urls" -}}
{{- $config := default dict .Values.config -}}
{{- $urls := dict -}}
{{- range $i, $p := $config.providers }}{{ $_ := set $urls (printf "config.providers[%d].base_url" $i) (default "" $p.base_url) }}{{ end -}}
{{- range list "traces" "metrics" -}}
{{- $_ := set $urls (printf "config.telemetry.%s.endpoint" .) (default "" (get (default dict $config.telemetry) . | default dict).endpoint) -}}
{{- end -}}
{{- toYaml $urls -}}
{{- end }}

{{- /* Fails for variables that the proxy would refuse, and for those that the chart sets. */}}
{{- define "remora.validateVariables" -}}
{{- $own := dict "STORE_URL" "use store.url or store.existingSecret" "SERVER_ADMIN_TOKEN" "use admin.token or admin.existingSecret" -}}
{{- $own = merge $own (dict "SERVER_SHUTDOWN_DELAY" "use preStopSeconds" "SERVER_SHUTDOWN_GRACE" "use shutdownGraceSeconds") -}}
{{- $own = merge $own (dict "SERVER_TLS_CERT" "use tls.secretName" "SERVER_TLS_KEY" "use tls.secretName") -}}
{{- $own = merge $own (dict "SERVER_LISTEN" "the chart's Service needs :8080" "SERVER_ADMIN_LISTEN" "the chart's probes need :9090") -}}
{{- $known := .Files.Lines "files/variables.txt" -}}
{{- $config := toYaml .Values.config -}}
{{- $at := dict -}}
{{- range $name, $_ := .Values.secretEnv -}}
{{- if not (regexMatch `^[A-Za-z_][A-Za-z0-9_]*$` $name) -}}
{{- fail (printf "secretEnv.%s: want the name of a variable: letters, digits and _, and no digit first" $name) -}}
{{- end -}}
{{- $_ := set $at $name (printf "secretEnv.%s" $name) -}}
{{- end -}}
{{- range $i, $e := .Values.env }}{{ $_ := set $at $e.name (printf "env[%d]: %s" $i $e.name) }}{{ end -}}
{{- range $name, $path := $at -}}
{{- with get $own (trimPrefix "REMORA_" $name) }}{{ fail (printf "%s: %s" $path .) }}{{ end -}}
{{- if and (hasPrefix "REMORA_" $name) (not (has $name $known)) (not (contains (printf "${%s}" $name) $config)) -}}
{{- fail (printf "%s: want a key of the configuration after REMORA_, such as REMORA_SESSION_KEY; the proxy refuses others" $path) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* store.spool as pods see it: variables count more than the file. */}}
{{- define "remora.spool" -}}
{{- $v := .Values -}}
{{- $spool := merge (dict) (default dict (default dict ($v.config).store).spool) (dict "dir" "/data/spool" "max_bytes" "1GiB") -}}
{{- range $v.env -}}
{{- if and (eq .name "REMORA_STORE_SPOOL_DIR") .value }}{{ $_ := set $spool "dir" .value }}{{ end -}}
{{- if and (eq .name "REMORA_STORE_SPOOL_MAX_BYTES") .value }}{{ $_ := set $spool "max_bytes" .value }}{{ end -}}
{{- end -}}
{{- with ($v.secretEnv).REMORA_STORE_SPOOL_DIR }}{{ $_ := set $spool "dir" . }}{{ end -}}
{{- with ($v.secretEnv).REMORA_STORE_SPOOL_MAX_BYTES }}{{ $_ := set $spool "max_bytes" . }}{{ end -}}
{{- toYaml $spool -}}
{{- end }}

{{- /* The bytes of store.spool.max_bytes; the default's, if it is a reference. */}}
{{- define "remora.spoolBytes" -}}
{{- $most := (include "remora.spool" . | fromYaml).max_bytes -}}
{{- include "remora.bytes" (ternary "1GiB" $most (contains "${" (toString $most))) -}}
{{- end }}

{{- /* Fails for a spool that cannot be written, or does not fit. */}}
{{- define "remora.validateSpool" -}}
{{- $v := .Values -}}
{{- $spool := include "remora.spool" . | fromYaml -}}
{{- $dir := $spool.dir | default "" -}}
{{- $mounts := list "/data" -}}
{{- range $v.extraVolumeMounts }}{{ $mounts = append $mounts (.mountPath | trimSuffix "/") }}{{ end -}}
{{- $mounted := not (hasPrefix "/" $dir) -}}
{{- range $mounts }}{{ if hasPrefix (printf "%s/" .) (printf "%s/" $dir) }}{{ $mounted = true }}{{ end }}{{ end -}}
{{- if and (not $mounted) (not (contains "${" $dir)) -}}
{{- fail "config.store.spool.dir: want a folder below /data or one of extraVolumeMounts; all else of the container is read-only" -}}
{{- end -}}
{{- $inData := or (not (hasPrefix "/" $dir)) (hasPrefix "/data/" (printf "%s/" $dir)) -}}
{{- if and $dir $inData (not $v.persistence.existingClaim) (not (contains "${" (toString $spool.max_bytes))) -}}
{{- $key := ternary "persistence.size" "dataSizeLimit" $v.persistence.enabled -}}
{{- $size := ternary $v.persistence.size $v.dataSizeLimit $v.persistence.enabled -}}
{{- $need := div (mul 5 (include "remora.bytes" $spool.max_bytes | int64)) 4 -}}
{{- if lt (include "remora.bytes" $size | int64) $need -}}
{{- fail (printf "%s: want five quarters of config.store.spool.max_bytes (%v) or more, have %s" $key $spool.max_bytes $size) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* The bytes of a Kubernetes quantity, or of a size of config.yaml. */}}
{{- define "remora.bytes" -}}
{{- $s := kindIs "string" . | ternary (toString .) (printf "%d" (int64 .)) -}}
{{- $units := dict "" 1 "B" 1 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- mulf (regexFind "^[0-9.]+" $s | float64) (get $units (regexFind "[A-Za-z]*$" $s | trimSuffix "B" | replace "K" "k" | replace "ki" "Ki")) | int64 -}}
{{- end }}

{{- /* The ports of the hosts of a URL, divided by spaces. */}}
{{- define "remora.ports" -}}
{{- $port := "80" -}}
{{- if contains "+sentinel:" . }}{{ $port = "26379" }}{{ else if hasPrefix "redis" . }}{{ $port = "6379" }}{{ else if hasPrefix "https:" . }}{{ $port = "443" }}{{ end -}}
{{- range splitList "," (regexReplaceAll `[/?].*$` (regexReplaceAll `^[^:]*://([^/?]*@)?` . "") "") -}}
{{ regexFind ":[0-9]+$" . | trimPrefix ":" | default $port }}{{ " " }}
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
