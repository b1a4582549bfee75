{{- define "felixlike.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- define "felixlike.labels" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "felixlike.metrics" -}}
{{- $address := .Values.config.healthAddress }}
{{- if not (hasKey .Values.config "healthAddress") }}{{ $address = ":10288" }}{{ end }}
{{- if or (not $address) (hasPrefix "127." $address) (hasPrefix "[::1]" $address) }}
{{- fail "monitoring.podMonitor needs a config.healthAddress that Prometheus reaches, such as \":10288\"" }}
{{- end }}
{{- $address }}
{{- end }}

{{- define "felixlike.metricsPort" -}}
{{ include "felixlike.metrics" . | regexFind "[0-9]+$" }}
{{- end }}
