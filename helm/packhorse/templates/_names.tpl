{{- define "packhorse.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 30 characters, so that a subscriber's name still fits behind it. */}}
{{- define "packhorse.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 30 | trimSuffix "-" -}}
{{- else if contains (include "packhorse.name" .) .Release.Name -}}
{{- .Release.Name | trunc 30 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "packhorse.name" .) | trunc 30 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "packhorse.selectorLabels" -}}
app.kubernetes.io/name: {{ include "packhorse.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "packhorse.labels" -}}
{{ include "packhorse.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: packhorse
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "packhorse.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "packhorse.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "packhorse.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}

{{- define "packhorse.pipelineImage" -}}
{{- printf "%s:%s" .Values.pipeline.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
