{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- define "pyroscope.fullname" -}}
{{- .Values.pyroscope.fullnameOverride | default .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "pyroscope.selectorLabels" -}}
app.kubernetes.io/name: pyroscope
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: all
{{- end -}}

{{- define "pyroscope.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{ include "pyroscope.selectorLabels" . }}
app.kubernetes.io/version: {{ .Values.pyroscope.image.tag | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}
