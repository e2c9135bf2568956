{{- define "responses-edge.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "responses-edge.fullname" -}}
{{- $name := include "responses-edge.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{/* What a selector is made of, which never changes. */}}
{{- define "responses-edge.selector" -}}
app.kubernetes.io/name: {{ include "responses-edge.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "responses-edge.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "responses-edge.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "responses-edge.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "responses-edge.secret" -}}
{{- .Values.secrets.existing | default (include "responses-edge.fullname" .) -}}
{{- end }}

{{- define "responses-edge.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "responses-edge.fullname" .) -}}
{{- end }}

{{/* A user without rights, as the namespace's profile `restricted` asks for. */}}
{{- define "responses-edge.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "responses-edge.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop:
    - ALL
{{- end }}

{{/* A number as it is written: Helm reads 120000 of a file as 120000.0, and prints large ones with an exponent. */}}
{{- define "responses-edge.value" -}}
{{- if kindIs "float64" . -}}{{- . | toJson -}}{{- else -}}{{- . | toString -}}{{- end -}}
{{- end }}
