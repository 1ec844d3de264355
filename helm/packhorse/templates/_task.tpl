{{/*
One task of the pipeline by schedule. Takes .root, .task (its name) and .when.
*/}}
{{- define "packhorse.task" -}}
{{- $root := .root -}}
{{- $values := $root.Values.pipeline.task -}}
{{- $settings := dict "PACKHORSE_TABLES_URL" $root.Values.pipeline.tablesUrl -}}
{{- $secrets := dict
  "PACKHORSE_JOURNAL_URL_FILE" $root.Values.secrets.journalUrl
  "PACKHORSE_DATABASE_URL_FILE" $root.Values.secrets.authorDatabaseUrl -}}
{{- if has .task (list "audit" "mark" "run") -}}
{{- $_ := set $secrets "PACKHORSE_SUBSCRIBER_DATABASES_FILE" $root.Values.pipeline.subscriberDatabases -}}
{{- end -}}
{{- if eq .task "bulk" -}}
{{- $_ := set $settings "PACKHORSE_PUBLISHER_URL" (include "packhorse.publisherUrl" $root) -}}
{{- $_ := set $secrets "PACKHORSE_PUBLISHER_TOKEN_FILE" $root.Values.pipeline.publisherToken -}}
{{- end -}}
{{- $parameters := dict
  "root" $root
  "temporary" $values.temporary
  "settings" (merge $settings $values.env)
  "secrets" $secrets -}}
apiVersion: batch/v1
kind: CronJob
metadata:
  name: {{ include "packhorse.fullname" $root }}-{{ .task }}
  labels:
    {{- include "packhorse.labels" $root | nindent 4 }}
    app.kubernetes.io/component: pipeline-{{ .task }}
spec:
  schedule: {{ .when.schedule | quote }}
  timeZone: Etc/UTC
  # Two of one task would only wait for each other.
  concurrencyPolicy: Forbid
  startingDeadlineSeconds: 600
  successfulJobsHistoryLimit: 1
  failedJobsHistoryLimit: 3
  jobTemplate:
    spec:
      backoffLimit: 2
      # Alerts name a failed Job for as long as it is there.
      ttlSecondsAfterFinished: 86400
      # What the same run would only meet again: docs/operations/pipeline.md has the codes. An audit
      # ends with 3 also when a server was away.
      podFailurePolicy:
        rules:
        - action: FailJob
          onExitCodes:
            containerName: {{ .task }}
            operator: In
            values: {{ get (dict "audit" "[1, 2]" "run" "[2]") .task | default "[2, 3, 4]" }}
      template:
        {{- include "packhorse.pod" (merge (dict
          "labels" (dict "app.kubernetes.io/component" (printf "pipeline-%s" .task))
          "container" .task
          "command" (concat (list "packhorse-pipeline" .task) .when.arguments | toJson)
          "image" (include "packhorse.pipelineImage" $root)
          "restartPolicy" "Never"
          "serviceAccountName" (include "packhorse.serviceAccountName" $root)
          "terminationGracePeriodSeconds" $values.terminationGracePeriodSeconds
          "body" (include "packhorse.taskBody" $parameters)
          "resources" (toYaml $values.resources)) $parameters) | nindent 8 }}
{{- end -}}

{{- define "packhorse.taskBody" -}}
envFrom:
- configMapRef:
    name: {{ include "packhorse.fullname" .root }}
env:
  {{- include "packhorse.environment" . | nindent 2 }}
{{- end -}}
