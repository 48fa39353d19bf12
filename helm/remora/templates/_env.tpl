{{- /* Variables of the proxy, one list entry each: secrets, and what the Go runtime reads by itself. */}}
{{- define "remora.env" -}}
{{- with include "remora.memoryTarget" . }}
# The collector works harder before the limit is reached, instead of the kernel killing the process at it.
- {name: GOMEMLIMIT, value: {{ . }}}
{{- end }}
{{- if eq (include "remora.storeKind" .) "secret" }}
- name: REMORA_STORE_URL
  valueFrom: {secretKeyRef: {name: {{ .Values.store.existingSecret }}, key: {{ .Values.store.existingSecretKey }}}}
{{- else if ne (include "remora.storeKind" .) "bolt" }}
- name: REMORA_STORE_URL
  valueFrom: {secretKeyRef: {name: {{ include "remora.fullname" . }}, key: REMORA_STORE_URL}}
{{- end }}
{{- if .Values.admin.existingSecret }}
- name: REMORA_SERVER_ADMIN_TOKEN
  valueFrom: {secretKeyRef: {name: {{ .Values.admin.existingSecret }}, key: {{ .Values.admin.existingSecretKey }}}}
{{- else }}
- name: REMORA_SERVER_ADMIN_TOKEN
  valueFrom: {secretKeyRef: {name: {{ include "remora.fullname" . }}, key: REMORA_SERVER_ADMIN_TOKEN}}
{{- end }}
{{- if or .Values.trustedCA.configMap .Values.trustedCA.secret }}
# Besides the file of public certificates in the image.
- {name: SSL_CERT_DIR, value: /etc/remora/ca}
{{- end }}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end }}
