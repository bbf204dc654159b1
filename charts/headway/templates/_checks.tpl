{{/* What the schema cannot see: values that do not fit together. Each message names the value and what to do. */}}
{{- define "headway.check" -}}
{{- $name := include "headway.fullname" . -}}
{{- if not (regexMatch "^[a-z]" $name) -}}
{{- fail (printf "fullnameOverride: %q begins with a digit, which the name of a Service may not; give another one" $name) -}}
{{- end -}}
{{- $nats := .Values.nats -}}
{{- if and $nats.enabled $nats.url -}}
{{- fail "nats.url: nats.enabled is on, which is a server of the release's own; give one of the two" -}}
{{- end -}}
{{- range $prefix, $given := dict "nats" $nats "nats.workers" $nats.workers "nats.test" $nats.test -}}
{{- $identities := list -}}
{{- range $kind := list "credentials" "nkey" "user" -}}
{{- if (get $given $kind).name }}{{ $identities = append $identities $kind }}{{ end -}}
{{- end -}}
{{- if gt (len $identities) 1 -}}
{{- fail (printf "%s.%s: give one kind of identity only (%s)" $prefix (last $identities) (join ", " $identities)) -}}
{{- end -}}
{{- if and $nats.enabled $identities -}}
{{- fail (printf "%s.%s: the bundled server has a user of its own; use nats.bundled.existingSecret" $prefix (first $identities)) -}}
{{- end -}}
{{- end -}}
{{- $seen := dict -}}
{{- range $index, $entry := .Values.models -}}
{{- if hasKey $seen $entry.name -}}
{{- fail (printf "models[%d].name: %q is there twice; give the second another name and servedName: %s" $index $entry.name $entry.name) -}}
{{- end -}}
{{- $_ := set $seen $entry.name true -}}
{{- end -}}
{{- include "headway.checkScaling" . -}}
{{- end -}}

{{- define "headway.checkScaling" -}}
{{- $scaling := .Values.autoscaling -}}
{{- if $scaling.enabled -}}
{{- if and (eq $scaling.source "keda") (eq .Values.tls.mode "insecure") -}}
{{- fail "tls.mode: autoscaling.source keda serves its scaler by mutual TLS; choose generate, secret or cert-manager" -}}
{{- end -}}
{{- range (include "headway.workers" . | fromYaml).workers -}}
{{- $own := include "headway.scaling" (dict "root" $ "worker" .) | fromYaml -}}
{{- if gt (int $own.minReplicas) (int $own.maxReplicas) -}}
{{- fail (printf "autoscaling.maxReplicas: %d is less than minReplicas %d (models entry %s)" (int $own.maxReplicas) (int $own.minReplicas) .name) -}}
{{- end -}}
{{- end -}}
{{- if eq $scaling.source "external-metrics" -}}
{{- include "headway.checkMetricsApi" . -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Only one program per cluster can serve external metrics. `lookup` sees it at an install by Helm; the queue looks again
when it runs. */}}
{{- define "headway.checkMetricsApi" -}}
{{- $registered := lookup "apiregistration.k8s.io/v1" "APIService" "" "v1beta1.external.metrics.k8s.io" -}}
{{- if $registered -}}
{{- $owner := default (dict) $registered.spec.service -}}
{{- if not (and (eq (default "" $owner.name) (include "headway.metricsApiName" .)) (eq (default "" $owner.namespace) .Release.Namespace)) -}}
{{- fail (printf "autoscaling.source: the external metrics API of this cluster belongs to Service %s in namespace %s; choose keda if that is KEDA, or prometheus-adapter if it is that" (default "?" $owner.name) (default "?" $owner.namespace)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
