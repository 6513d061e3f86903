{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- define "pyroscope.fullname" -}}
{{- .Values.pyroscope.fullnameOverride | default .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "pyroscope.selectorLabels" -}}
app.kubernetes.io/name: pyroscope
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "pyroscope.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{ include "pyroscope.selectorLabels" . }}
app.kubernetes.io/version: {{ .Values.pyroscope.image.tag | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "pyroscope.serviceAccountName" -}}
{{- .Values.pyroscope.serviceAccount.name | default (include "pyroscope.fullname" .) -}}
{{- end -}}

{{- define "pyroscope.components" -}}
{{- if .Values.pyroscope.components -}}
{{- toYaml .Values.pyroscope.components -}}
{{- else -}}
all:
  kind: StatefulSet
  replicaCount: {{ .Values.pyroscope.replicaCount }}
{{- end -}}
{{- end -}}

{{- define "pyroscope.componentName" -}}
{{- $name := include "pyroscope.fullname" (index . 0) -}}
{{- if eq (index . 1) "all" }}{{ $name }}{{ else }}{{ $name }}-{{ index . 1 }}{{ end -}}
{{- end -}}
