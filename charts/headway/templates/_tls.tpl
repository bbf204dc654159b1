{{/* The certificates between queue and workers, and of what the queue serves to the autoscaler. */}}

{{/* The Secrets, by name; empty where there is no TLS. */}}
{{- define "headway.queueSecret" -}}
{{- if eq .Values.tls.mode "secret" -}}
{{- required "tls.queueSecret and tls.workerSecret: tls.mode is secret, so name the Secrets with ca.crt, tls.crt and tls.key of the queue and of the workers" .Values.tls.queueSecret -}}
{{- else if ne .Values.tls.mode "insecure" -}}
{{- include "headway.queueName" . }}-tls
{{- end -}}
{{- end -}}

{{- define "headway.workerSecret" -}}
{{- if eq .Values.tls.mode "secret" -}}
{{- required "tls.queueSecret and tls.workerSecret: tls.mode is secret, so name the Secrets with ca.crt, tls.crt and tls.key of the queue and of the workers" .Values.tls.workerSecret -}}
{{- else if ne .Values.tls.mode "insecure" -}}
{{- include "headway.fullname" . }}-worker-tls
{{- end -}}
{{- end -}}

{{- define "headway.kedaSecret" -}}
{{- if eq .Values.tls.mode "secret" -}}
{{- required "tls.kedaSecret: tls.mode is secret, so name the Secret with ca.crt, tls.crt and tls.key for KEDA" .Values.tls.kedaSecret -}}
{{- else -}}
{{- include "headway.fullname" . }}-keda-tls
{{- end -}}
{{- end -}}

{{/* DNS names of the queue's certificate, as JSON. The first is what workers and followers ask for, whichever address
they use. */}}
{{- define "headway.queueDnsNames" -}}
{{- $names := list -}}
{{- range list (include "headway.queueName" .) (include "headway.metricsApiName" .) -}}
{{- $names = concat $names (list . (printf "%s.%s" . $.Release.Namespace) (printf "%s.%s.svc" . $.Release.Namespace)) -}}
{{- end -}}
{{- $names | toJson -}}
{{- end -}}

{{/* Whether KEDA needs a certificate. */}}
{{- define "headway.isKeda" -}}
{{- if and .Values.autoscaling.enabled (eq .Values.autoscaling.source "keda") }}yes{{ end -}}
{{- end -}}

{{/* Who makes the certificate of the metrics API: the chart, or the process, which then may write one Secret and the
authority in the APIService. */}}
{{- define "headway.metricsCertificate" -}}
{{- if or (has .Values.tls.mode (list "generate" "cert-manager")) (and (eq .Values.tls.mode "secret") .Values.tls.caBundle) -}}
chart
{{- else -}}
process
{{- end -}}
{{- end -}}

{{/* Generated certificates, as `certificates` in the values, since the authority's key exists only in this one rendering and
several files need what it signed. A set that is in the cluster already is kept. */}}
{{- define "headway.makeCertificates" -}}
{{- if not (hasKey .Values "certificates") -}}
{{- $secrets := list (include "headway.queueSecret" .) (include "headway.workerSecret" .) -}}
{{- if include "headway.isKeda" . }}{{ $secrets = append $secrets (include "headway.kedaSecret" .) }}{{ end -}}
{{- $made := dict -}}
{{- range $secrets -}}
{{- $known := lookup "v1" "Secret" $.Release.Namespace . -}}
{{- if and $known $known.data }}{{ $_ := set $made . $known.data }}{{ end -}}
{{- end -}}
{{- if ne (len $made) (len $secrets) -}}
{{- $days := int .Values.tls.validityDays -}}
{{- $authority := genCA (printf "%s authority" (include "headway.fullname" .)) $days -}}
{{- range $index, $secret := $secrets -}}
{{- $names := list $secret -}}
{{- if eq $index 0 }}{{ $names = include "headway.queueDnsNames" $ | fromJsonArray }}{{ end -}}
{{- $certificate := genSignedCert (first $names) nil $names $days $authority -}}
{{- $_ := set $made $secret (dict "ca.crt" (b64enc $authority.Cert) "tls.crt" (b64enc $certificate.Cert) "tls.key" (b64enc $certificate.Key)) -}}
{{- end -}}
{{- end -}}
{{- $_ := set .Values "certificates" $made -}}
{{- end -}}
{{- end -}}
