{{/* Names and labels. Everything hangs on the full name, which leaves room for the endings of the objects. */}}

{{/* A name of at most so many characters. One that is cut ends in a hash of the whole, so that two never meet. Takes a list of
name and number. */}}
{{- define "headway.shortened" -}}
{{- $whole := first . -}}
{{- if gt (len $whole) (last .) -}}
{{- printf "%s-%s" ($whole | trunc (int (sub (last .) 9)) | trimSuffix "-") ($whole | sha256sum | trunc 8) -}}
{{- else -}}
{{- $whole | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "headway.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $whole := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- /* A release may have dots in its name, a Service may not. */ -}}
{{- include "headway.shortened" (list (default $whole .Values.fullnameOverride | replace "." "-") 40) -}}
{{- end -}}

{{- define "headway.queueName" -}}{{ include "headway.fullname" . }}-queue{{- end -}}

{{/* The Service that the APIService names. */}}
{{- define "headway.metricsApiName" -}}{{ include "headway.fullname" . }}-queue-metrics{{- end -}}

{{- define "headway.natsName" -}}{{ include "headway.fullname" . }}-nats{{- end -}}

{{/* Of one entry of `models`: so short that KEDA's name for its autoscaler fits too. Takes root and worker. */}}
{{- define "headway.workerName" -}}
{{- include "headway.shortened" (list (printf "%s-worker-%s" (include "headway.fullname" .root) .worker.name) 52) -}}
{{- end -}}

{{- define "headway.queueAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- include "headway.queueName" . -}}
{{- else -}}
{{- required "serviceAccount.queueName and serviceAccount.workerName: name both accounts, or set serviceAccount.create" .Values.serviceAccount.queueName -}}
{{- end -}}
{{- end -}}

{{- define "headway.workerAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- include "headway.fullname" . }}-worker
{{- else -}}
{{- required "serviceAccount.queueName and serviceAccount.workerName: name both accounts, or set serviceAccount.create" .Values.serviceAccount.workerName -}}
{{- end -}}
{{- end -}}

{{/* What a selector looks for. Takes root and component. */}}
{{- define "headway.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Of an object. Labels of one's own win over ours, except over those by which objects are found. Takes root, component and
own (labels of this object alone). */}}
{{- define "headway.labels" -}}
{{- $ours := dict
  "app.kubernetes.io/version" .root.Chart.AppVersion
  "app.kubernetes.io/part-of" "headway"
  "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_") -}}
{{- $found := include "headway.selector" . | fromYaml -}}
{{- $_ := set $found "app.kubernetes.io/managed-by" .root.Release.Service -}}
{{- toYaml (mergeOverwrite $ours .root.Values.commonLabels (default (dict) .own) $found) -}}
{{- end -}}

{{/* Of a pod: what its owner adds, and what it is selected by. Takes root, component and labels. */}}
{{- define "headway.podLabels" -}}
{{- $found := include "headway.selector" . | fromYaml -}}
{{- toYaml (mergeOverwrite (dict) .root.Values.commonLabels (default (dict) .labels) (default (dict) .own) $found) -}}
{{- end -}}
