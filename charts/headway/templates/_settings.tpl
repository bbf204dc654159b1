{{/* The settings files. A process gets those groups that it reads; what the chart sets wins, and the schema refuses it in
`settings`. */}}

{{/* Settings by group; of several maps the last one wins, setting by setting. Takes a list of maps. */}}
{{- define "headway.mergedSettings" -}}
{{- $merged := dict -}}
{{- range . -}}
{{- range $group, $fields := default (dict) . -}}
{{- $known := default (dict) (get $merged $group) -}}
{{- range $name, $value := $fields }}{{ $_ := set $known $name $value }}{{ end -}}
{{- $_ := set $merged $group $known -}}
{{- end -}}
{{- end -}}
{{- toYaml $merged -}}
{{- end -}}

{{/* The groups among them that a process reads. Takes settings and groups. */}}
{{- define "headway.onlyGroups" -}}
{{- $kept := dict -}}
{{- range $group, $fields := .settings -}}
{{- if has $group $.groups }}{{ $_ := set $kept $group $fields }}{{ end -}}
{{- end -}}
{{- toYaml $kept -}}
{{- end -}}

{{- define "headway.queueSettings" -}}
{{- $groups := list "queue" "broker" "lease" "lease_terms" "election" "roles" "telemetry" "cluster" -}}
{{- /* A Lease of the Kubernetes API is written less often than one in NATS. */ -}}
{{- $defaults := dict
  "telemetry" (dict "log_format" "json")
  "election" (dict "election_lease_seconds" 15 "election_renew_seconds" 2) -}}
{{- $common := include "headway.onlyGroups" (dict "settings" .Values.settings "groups" $groups) | fromYaml -}}
{{- $fixed := dict
  "broker" (include "headway.brokerSettings" (dict "root" . "role" "queue") | fromYaml)
  "lease" (include "headway.queueLease" . | fromYaml)
  "roles" (dict "models" (include "headway.servedNames" . | fromJsonArray))
  "election" (dict "election" "kubernetes")
  "telemetry" (dict "metrics_listen" (printf "%s:9464" .Values.listenHost))
  "cluster" (include "headway.clusterSettings" . | fromYaml) -}}
{{- include "headway.mergedSettings" (list $defaults $common .Values.queue.settings $fixed) -}}
{{- end -}}

{{/* Takes root and worker. */}}
{{- define "headway.workerSettings" -}}
{{- $groups := list "engine" "scheduler" "broker" "lease" "roles" "telemetry" -}}
{{- $common := include "headway.onlyGroups" (dict "settings" .root.Values.settings "groups" $groups) | fromYaml -}}
{{- $engine := dict "model" .worker.model "served_model" .worker.servedName "device" (ternary "cuda" "cpu" (gt (int .worker.gpus) 0)) -}}
{{- if gt (int .worker.gpus) 1 }}{{ $_ := set $engine "tensor_parallel_size" (int .worker.gpus) }}{{ end -}}
{{- $fixed := dict
  "engine" $engine
  "broker" (include "headway.brokerSettings" (dict "root" .root "role" "workers") | fromYaml)
  "lease" (include "headway.workerLease" .root | fromYaml)
  "roles" (dict "drain_seconds" (int .worker.drainSeconds))
  "telemetry" (dict "metrics_listen" (printf "%s:9464" .root.Values.listenHost)) -}}
{{- include "headway.mergedSettings" (list (dict "telemetry" (dict "log_format" "json")) $common .worker.settings $fixed) -}}
{{- end -}}

{{/* Where NATS is, and the files to be known by there. Takes root and role. */}}
{{- define "headway.brokerSettings" -}}
{{- $identity := include "headway.natsIdentity" . | fromYaml -}}
nats_url: {{ include "headway.natsUrl" .root | quote }}
{{- if $identity.credentials }}
nats_credentials_file: /etc/headway/nats/credentials
{{- end }}
{{- if $identity.nkey }}
nats_nkey_file: /etc/headway/nats/nkey
{{- end }}
{{- if .root.Values.nats.tls.ca.name }}
nats_tls_ca_file: /etc/headway/nats/ca.crt
{{- end }}
{{- if .root.Values.nats.tls.client.name }}
nats_tls_cert_file: /etc/headway/nats/tls.crt
nats_tls_key_file: /etc/headway/nats/tls.key
{{- end }}
{{- end -}}

{{- define "headway.leaseTls" -}}
{{- if eq .Values.tls.mode "insecure" }}
lease_insecure: true
{{- else }}
lease_ca_file: /etc/headway/tls/ca.crt
lease_cert_file: /etc/headway/tls/tls.crt
lease_key_file: /etc/headway/tls/tls.key
lease_server_name: {{ include "headway.queueName" . }}
{{- end }}
{{- end -}}

{{- define "headway.queueLease" -}}
lease_listen: {{ printf "%s:4280" .Values.listenHost | quote }}
health_listen: {{ printf "%s:4281" .Values.listenHost | quote }}
{{- include "headway.leaseTls" . }}
{{- end -}}

{{- define "headway.workerLease" -}}
lease_address: {{ include "headway.queueName" . }}.{{ .Release.Namespace }}.svc:4280
health_listen: {{ printf "%s:4281" .Values.listenHost | quote }}
{{- include "headway.leaseTls" . }}
{{- end -}}

{{/* What the queue does with the Kubernetes API. Its namespace, pod and address come from the pod's environment. */}}
{{- define "headway.clusterSettings" -}}
election_lease_name: {{ include "headway.queueName" . }}
deletion_costs: true
{{- if .Values.autoscaling.enabled }}
{{- if ne .Values.autoscaling.source "prometheus-adapter" }}
jobs_per_worker: {{ include "headway.jobsPerWorker" . }}
{{- end }}
{{- if eq .Values.autoscaling.source "external-metrics" }}
external_metrics_listen: {{ printf "%s:10250" .Values.listenHost | quote }}
external_metrics_service: {{ include "headway.metricsApiName" . }}
{{- if eq (include "headway.metricsCertificate" .) "chart" }}
external_metrics_cert_file: /etc/headway/tls/tls.crt
external_metrics_key_file: /etc/headway/tls/tls.key
{{- else }}
external_metrics_secret: {{ include "headway.fullname" . }}-external-metrics
{{- end }}
{{- else if eq .Values.autoscaling.source "keda" }}
keda_listen: {{ printf "%s:4283" .Values.listenHost | quote }}
keda_ca_file: /etc/headway/tls/ca.crt
keda_cert_file: /etc/headway/tls/tls.crt
keda_key_file: /etc/headway/tls/tls.key
{{- end }}
{{- end }}
{{- end -}}
