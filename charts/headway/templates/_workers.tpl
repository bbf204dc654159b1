{{/* The entries of `models`, each completed by `workerDefaults`. */}}

{{/* One entry as a whole: its own fields, and the defaults of those that it lacks. Written out because Sprig's merge takes a
0 or a false for "not given". Takes defaults and entry. */}}
{{- define "headway.worker" -}}
{{- $worker := deepCopy .defaults -}}
{{- range $field, $value := .entry -}}
{{- if has $field (list "nodeSelector" "podLabels" "podAnnotations") -}}
{{- $merged := deepCopy (default (dict) (get $worker $field)) -}}
{{- range $key, $inner := $value }}{{ $_ := set $merged $key $inner }}{{ end -}}
{{- $_ := set $worker $field $merged -}}
{{- else if eq $field "settings" -}}
{{- $_ := set $worker $field (include "headway.mergedSettings" (list $worker.settings $value) | fromYaml) -}}
{{- else if not (kindIs "invalid" $value) -}}
{{- $_ := set $worker $field $value -}}
{{- end -}}
{{- end -}}
{{- $_ := set $worker "servedName" (default $worker.name $worker.servedName) -}}
{{- toYaml $worker -}}
{{- end -}}

{{/* All of them, under the key `workers`, as YAML. */}}
{{- define "headway.workers" -}}
workers:
{{- range .Values.models }}
  - {{- include "headway.worker" (dict "defaults" $.Values.workerDefaults "entry" .) | nindent 4 }}
{{- end }}
{{- end -}}

{{/* max_num_seqs of a worker, the code's default where no setting says so. Takes root and worker. */}}
{{- define "headway.maxNumSeqs" -}}
{{- $settings := include "headway.mergedSettings" (list .root.Values.settings .worker.settings) | fromYaml -}}
{{- int (dig "scheduler" "max_num_seqs" 64 $settings) -}}
{{- end -}}

{{/* The served names, each once, sorted; as JSON. */}}
{{- define "headway.servedNames" -}}
{{- $names := .Values.queue.extraModels -}}
{{- range (include "headway.workers" . | fromYaml).workers }}{{ $names = append $names .servedName }}{{ end -}}
{{- $names | uniq | sortAlpha | toJson -}}
{{- end -}}

{{/* Jobs that a worker runs at a time, by served name: the largest entry counts. As JSON. */}}
{{- define "headway.jobsPerWorker" -}}
{{- $jobs := dict -}}
{{- range (include "headway.workers" . | fromYaml).workers -}}
{{- $own := int (default (include "headway.maxNumSeqs" (dict "root" $ "worker" .)) .jobsPerWorker) -}}
{{- $_ := set $jobs .servedName (max $own (int (default 0 (get $jobs .servedName)))) -}}
{{- end -}}
{{- $jobs | toJson -}}
{{- end -}}

{{/* What an entry is scaled by: `autoscaling` with the entry's own fields. The metrics are those of a model; of several entries
that serve one, each takes its part of them unless it is told a target. Takes root and worker. */}}
{{- define "headway.scaling" -}}
{{- $scaling := dict -}}
{{- range $field := list "minReplicas" "maxReplicas" "metric" "target" -}}
{{- /* Not `get`, which makes a "" of what is null or not there. */ -}}
{{- $own := index $.worker.autoscaling $field -}}
{{- $_ := set $scaling $field (ternary (index $.root.Values.autoscaling $field) $own (kindIs "invalid" $own)) -}}
{{- end -}}
{{- if kindIs "invalid" $scaling.target -}}
{{- $parts := 0 -}}
{{- range (include "headway.workers" .root | fromYaml).workers }}{{ if eq .servedName $.worker.servedName }}{{ $parts = add1 $parts }}{{ end }}{{ end -}}
{{- if eq $scaling.metric "headway_workers_needed" -}}
{{- $_ := set $scaling "target" (divf (mul 7 $parts) 10) -}}
{{- else if eq $scaling.metric "headway_backlog_tokens" -}}
{{- fail "autoscaling.target: headway_backlog_tokens needs one: the tokens of backlog that one worker should have" -}}
{{- else -}}
{{- $_ := set $scaling "target" (max 1 (div (mul 7 $parts (include "headway.maxNumSeqs" $ | int)) 10)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $scaling -}}
{{- end -}}
