{{/* How a pod reaches NATS: its address, and the Secrets that it needs. */}}

{{- define "headway.natsUrl" -}}
{{- if .Values.nats.enabled -}}
nats://{{ include "headway.natsName" . }}.{{ .Release.Namespace }}.svc:4222
{{- else -}}
{{- required "nats.url: give the address of your NATS, or set nats.enabled=true for a small one of the release's own" .Values.nats.url -}}
{{- end -}}
{{- end -}}

{{/* The Secret with `user` and `password` of the bundled server. */}}
{{- define "headway.natsSecret" -}}
{{- default (include "headway.natsName" .) .Values.nats.bundled.existingSecret -}}
{{- end -}}

{{/* Environment variables with the user's name and password; a password is in no file. */}}
{{- define "headway.natsEnv" -}}
{{- $user := .Values.nats.user -}}
{{- if .Values.nats.enabled }}{{ $user = dict "name" (include "headway.natsSecret" .) }}{{ end -}}
{{- if $user.name }}
- name: HEADWAY_NATS_USER
  valueFrom:
    secretKeyRef: {name: {{ $user.name }}, key: {{ default "user" $user.userKey }}}
- name: HEADWAY_NATS_PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ $user.name }}, key: {{ default "password" $user.passwordKey }}}
{{- end }}
{{- end -}}

{{/* The sources of the volume /etc/headway/nats; nothing where there is no file. */}}
{{- define "headway.natsSources" -}}
{{- with .Values.nats.credentials }}{{ if .name }}
- secret:
    name: {{ .name }}
    items: [{key: {{ default "headway.creds" .key }}, path: credentials}]
{{- end }}{{ end }}
{{- with .Values.nats.nkey }}{{ if .name }}
- secret:
    name: {{ .name }}
    items: [{key: {{ default "seed" .key }}, path: nkey}]
{{- end }}{{ end }}
{{- with .Values.nats.tls.ca }}{{ if .name }}
- secret:
    name: {{ .name }}
    items: [{key: {{ default "ca.crt" .key }}, path: ca.crt}]
{{- end }}{{ end }}
{{- with .Values.nats.tls.client }}{{ if .name }}
- secret:
    name: {{ .name }}
    items:
      - {key: {{ default "tls.crt" .certKey }}, path: tls.crt}
      - {key: {{ default "tls.key" .keyKey }}, path: tls.key}
{{- end }}{{ end }}
{{- end -}}

{{/* The ports of the addresses of NATS, each once; as JSON. */}}
{{- define "headway.natsPorts" -}}
{{- $ports := list -}}
{{- range splitList "," (include "headway.natsUrl" .) -}}
{{- $port := regexFind ":[0-9]+$" (trim . | trimSuffix "/") | trimPrefix ":" -}}
{{- $ports = append $ports (int (default "4222" $port)) -}}
{{- end -}}
{{- $ports | uniq | toJson -}}
{{- end -}}
