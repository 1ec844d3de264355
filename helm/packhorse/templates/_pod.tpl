{{/*
The template of a pod with one container. Takes .root, .labels, .annotations, .container (its name),
.command, .image, .body and .resources (YAML texts: the rest of the container), .secrets, .temporary,
and what only some pods have: .restartPolicy, .serviceAccountName, .terminationGracePeriodSeconds.
*/}}
{{- define "packhorse.pod" -}}
{{- $values := .root.Values -}}
metadata:
  labels:
    {{- include "packhorse.labels" .root | nindent 4 }}
    {{- toYaml .labels | nindent 4 }}
    {{- with $values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with compact (list .annotations $values.podAnnotations) }}
  annotations:
    {{- range . }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
spec:
  {{- with .restartPolicy }}
  restartPolicy: {{ . }}
  {{- end }}
  {{- with .serviceAccountName }}
  serviceAccountName: {{ . }}
  {{- end }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with .terminationGracePeriodSeconds }}
  terminationGracePeriodSeconds: {{ . }}
  {{- end }}
  securityContext:
    {{- include "packhorse.podSecurity" .root | nindent 4 }}
  {{- with $values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
  - name: {{ .container }}
    image: {{ .image }}
    imagePullPolicy: {{ $values.image.pullPolicy }}
    command: {{ .command }}
    {{- .body | nindent 4 }}
    securityContext:
      {{- include "packhorse.containerSecurity" .root | nindent 6 }}
    resources:
      {{- .resources | nindent 6 }}
    volumeMounts:
      {{- include "packhorse.volumeMounts" . | nindent 6 }}
  volumes:
    {{- include "packhorse.volumes" . | nindent 4 }}
  {{- with include "packhorse.placement" .root }}
  {{- . | nindent 2 }}
  {{- end }}
{{- end -}}
