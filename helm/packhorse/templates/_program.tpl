{{/*
The settings that every program shares, as a map of environment variables.
*/}}
{{- define "packhorse.sharedSettings" -}}
PACKHORSE_HOST: 0.0.0.0
PACKHORSE_PORT: "8080"
PACKHORSE_BLOBS_URL: {{ .Values.blobsUrl | quote }}
PACKHORSE_TOPIC_PREFIX: {{ .Values.topicPrefix | quote }}
{{- range $part, $name := .Values.topics }}
PACKHORSE_TOPIC_{{ upper $part }}: {{ $name | quote }}
{{- end }}
PACKHORSE_LOG_LEVEL: {{ .Values.log.level | quote }}
PACKHORSE_LOG_FORMAT: {{ .Values.log.format | quote }}
{{- with .Values.authentication.jwksUrl }}
PACKHORSE_JWKS_URL: {{ . | quote }}
{{- end }}
{{- with .Values.authentication.jwtIssuer }}
PACKHORSE_JWT_ISSUER: {{ . | quote }}
{{- end }}
{{- with .Values.authentication.jwtAudience }}
PACKHORSE_JWT_AUDIENCE: {{ . | quote }}
{{- end }}
{{- with .Values.authentication.jwtNameClaim }}
PACKHORSE_JWT_NAME_CLAIM: {{ . | quote }}
{{- end }}
{{- with .Values.authentication.jwtScopesClaim }}
PACKHORSE_JWT_SCOPES_CLAIM: {{ . | quote }}
{{- end }}
{{- with .Values.authentication.jwtScopes }}
PACKHORSE_JWT_SCOPES: {{ toJson . | quote }}
{{- end }}
{{- end -}}

{{/*
The variables of one container: its own settings, each secret's file, and the keys of S3, whose
client reads only variables. Takes .root, .settings, .secrets (variable -> {name, key}), and .s3Keys
where they are not those that the author's programs share.
*/}}
{{- define "packhorse.environment" -}}
{{- range $name, $value := .settings }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- range $name, $_ := .secrets }}
- name: {{ $name }}
  value: /run/secrets/packhorse/{{ $name }}
{{- end }}
{{- with .s3Keys | default .root.Values.secrets.s3Keys }}
{{- if .name }}
- name: AWS_ACCESS_KEY_ID
  valueFrom:
    secretKeyRef: {name: {{ .name }}, key: {{ .accessKeyId }}}
- name: AWS_SECRET_ACCESS_KEY
  valueFrom:
    secretKeyRef: {name: {{ .name }}, key: {{ .secretAccessKey }}}
{{- end }}
{{- end }}
{{- end -}}

{{- define "packhorse.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "packhorse.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "packhorse.volumeMounts" -}}
- name: tmp
  mountPath: /tmp
{{- if .secrets }}
- name: secrets
  mountPath: /run/secrets/packhorse
  readOnly: true
{{- end }}
{{- with .root.Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Each secret under the name of its variable; 0440 and fsGroup: the program and nobody else. */}}
{{- define "packhorse.volumes" -}}
- name: tmp
  emptyDir:
    sizeLimit: {{ .temporary | default "1Gi" }}
{{- if .secrets }}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
    {{- range $name, $secret := .secrets }}
    - secret:
        name: {{ $secret.name }}
        items:
        - key: {{ $secret.key }}
          path: {{ $name }}
    {{- end }}
{{- end }}
{{- with .root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Where the pods of every program, task and job may run. */}}
{{- define "packhorse.placement" -}}
{{- $placement := dict -}}
{{- range $name := list "nodeSelector" "affinity" "tolerations" -}}
{{- with index $.Values $name -}}{{- $_ := set $placement $name . -}}{{- end -}}
{{- end -}}
{{- with $placement -}}{{- toYaml . -}}{{- end -}}
{{- end -}}

{{- define "packhorse.probe" -}}
httpGet:
  path: {{ . }}
  port: http
timeoutSeconds: 5
{{- end -}}

{{/* What a program's container has that those of a task and of a job do not. */}}
{{- define "packhorse.programBody" -}}
envFrom:
- configMapRef:
    name: {{ include "packhorse.fullname" .root }}
env:
- name: PACKHORSE_INSTANCE_ID
  valueFrom:
    fieldRef: {fieldPath: metadata.name}
  {{- include "packhorse.environment" . | nindent 0 }}
{{- if eq .strategy "RollingUpdate" }}
# Requests go on coming until every node has heard that this pod ends.
lifecycle:
  preStop:
    sleep: {seconds: 5}
{{- end }}
ports:
- name: http
  containerPort: 8080
# The first start migrates the database, so it gets five minutes.
startupProbe:
  {{- include "packhorse.probe" "/startupz" | nindent 2 }}
  periodSeconds: 5
  failureThreshold: 60
livenessProbe:
  {{- include "packhorse.probe" "/livez" | nindent 2 }}
  periodSeconds: 10
  failureThreshold: 3
readinessProbe:
  {{- include "packhorse.probe" "/readyz" | nindent 2 }}
  periodSeconds: 5
  failureThreshold: 2
{{- end -}}

{{/*
One program: its Deployment and its Service.
Takes .root, .component, .instance (the name's end), .command, .values (the program's own),
.replicas, .strategy, .settings, .secrets, of which those without a name are left out; and, where they are others than the shared ones, .image,
.s3Keys and .serviceAccountName. Without .replicas, or with .values.autoscaling, the number of pods is
an autoscaler's: an upgrade would set it back. What the topology shows announces its Service.
*/}}
{{- define "packhorse.program" -}}
{{- $root := .root -}}
{{- $name := printf "%s-%s" (include "packhorse.fullname" $root) .instance -}}
{{- range $variable, $secret := .secrets -}}
{{- if not $secret.name -}}{{- $_ := unset $.secrets $variable -}}{{- end -}}
{{- end -}}
{{- if not (has .component (list "console" "pipeline")) -}}
{{- $endpoint := include "packhorse.urlOf" (list $root .instance) -}}
{{- $_ := set . "settings" (merge (dict) .settings (dict "PACKHORSE_ENDPOINT" $endpoint)) -}}
{{- end -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  labels:
    {{- include "packhorse.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  {{- if not (or (kindIs "invalid" .replicas) (dig "autoscaling" "enabled" false .values)) }}
  replicas: {{ .replicas }}
  {{- end }}
  strategy:
    type: {{ .strategy }}
  selector:
    matchLabels:
      {{- include "packhorse.selectorLabels" $root | nindent 6 }}
      app.kubernetes.io/component: {{ .component }}
      packhorse/instance: {{ .instance }}
  template:
    {{- include "packhorse.pod" (merge (dict
      "labels" (dict "app.kubernetes.io/component" .component "packhorse/instance" .instance)
      "annotations" (dict "checksum/settings" (include "packhorse.sharedSettings" $root | sha256sum))
      "container" .component
      "command" (printf "[%s]" .command)
      "image" (.image | default (include "packhorse.image" $root))
      "serviceAccountName" (.serviceAccountName | default (include "packhorse.serviceAccountName" $root))
      "terminationGracePeriodSeconds" .values.terminationGracePeriodSeconds
      "body" (include "packhorse.programBody" .)
      "resources" (toYaml .values.resources)) .) | nindent 4 }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ $name }}
  labels:
    {{- include "packhorse.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  type: {{ $root.Values.service.type }}
  selector:
    {{- include "packhorse.selectorLabels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
    packhorse/instance: {{ .instance }}
  ports:
  - name: http
    port: {{ $root.Values.service.port }}
    targetPort: http
{{- with .values.autoscaling }}
{{- if .enabled }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ $name }}
  labels:
    {{- include "packhorse.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ $.component }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ $name }}
  minReplicas: {{ .minReplicas }}
  maxReplicas: {{ .maxReplicas }}
  metrics:
  - type: Resource
    resource:
      name: cpu
      target:
        type: Utilization
        averageUtilization: {{ .targetCPUUtilizationPercentage }}
{{- end }}
{{- end }}
{{- end -}}
