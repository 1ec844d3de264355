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

{{/* Where a program of this release is, by a list of the root and the end of its name. */}}
{{- define "packhorse.urlOf" -}}
{{- $root := first . -}}
{{- printf "http://%s-%s:%d" (include "packhorse.fullname" $root) (last .) (int $root.Values.service.port) -}}
{{- end -}}

{{/* Where the bulk distribution sends its packages: this release's publisher, unless named. */}}
{{- define "packhorse.publisherUrl" -}}
{{- if .Values.pipeline.publisherUrl -}}
{{- .Values.pipeline.publisherUrl -}}
{{- else if .Values.publisher.enabled -}}
{{- include "packhorse.urlOf" (list . "publisher") -}}
{{- end -}}
{{- end -}}

{{/*
Where the programs may connect to by default, as a JSON array of ports: the usual ones, and those of the
URLs in the values: S3 endpoints, JWKS, programs of another release. Behind the Service of such a
program a policy sees the port of the pod.
*/}}
{{- define "packhorse.outwardPorts" -}}
{{- $urls := concat .Values.topology.connectorUrls (values .Values.console.publisherUrls) (values .Values.console.subscriberUrls) (values .Values.console.jobsUrls) (values .Values.console.topologyUrls) (list .Values.console.contentUrl .Values.console.cleanupUrl .Values.console.pipelineUrl) -}}
{{- $stores := list .Values.blobsUrl -}}
{{- $ports := list 5432 6432 9092 9093 443 -}}
{{- if .Values.pipeline.enabled -}}
{{- $urls = append $urls .Values.pipeline.publisherUrl -}}
{{- $stores = append $stores .Values.pipeline.tablesUrl -}}
{{- end -}}
{{- if compact $urls -}}
{{- $ports = append $ports 8080 -}}
{{- end -}}
{{- $urls = append $urls .Values.authentication.jwksUrl -}}
{{- range $stores -}}
{{- $urls = append $urls (regexFind "[?&]endpoint=[^&]+" . | trimPrefix "?" | trimPrefix "&" | trimPrefix "endpoint=") -}}
{{- end -}}
{{- range compact $urls -}}
{{- $parsed := urlParse . -}}
{{- $port := regexFind ":[0-9]+$" $parsed.host | trimPrefix ":" -}}
{{- $ports = append $ports (int ($port | default (ternary "443" "80" (eq $parsed.scheme "https")))) -}}
{{- end -}}
{{- $ports | uniq | sortAlpha | toJson -}}
{{- end -}}
