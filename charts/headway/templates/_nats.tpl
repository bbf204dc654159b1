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

{{/* Who a process is at NATS: what its role is given, else what all are; as YAML, one of credentials, nkey and user. Takes
root and role (queue, workers or test). */}}
{{- define "headway.natsIdentity" -}}
{{- $identity := dict -}}
{{- $nats := .root.Values.nats -}}
{{- range $given := list $nats (default (dict) (get $nats .role)) -}}
{{- range $kind := list "credentials" "nkey" "user" -}}
{{- $secret := default (dict) (get $given $kind) -}}
{{- if $secret.name }}{{ $identity = dict $kind $secret }}{{ end -}}
{{- end -}}
{{- end -}}
{{- if $nats.enabled }}{{ $identity = dict "user" (dict "name" (include "headway.natsSecret" .root)) }}{{ end -}}
{{- toYaml $identity -}}
{{- end -}}

{{/* Environment variables with the user's name and password; a password is in no file. Takes root and role. */}}
{{- define "headway.natsEnv" -}}
{{- with (include "headway.natsIdentity" . | fromYaml).user }}
- name: HEADWAY_NATS_USER
  valueFrom:
    secretKeyRef: {name: {{ .name }}, key: {{ default "user" .userKey }}}
- name: HEADWAY_NATS_PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ .name }}, key: {{ default "password" .passwordKey }}}
{{- end }}
{{- end -}}

{{/* The sources of the volume /etc/headway/nats; nothing where there is no file. Takes root and role. */}}
{{- define "headway.natsSources" -}}
{{- $identity := include "headway.natsIdentity" . | fromYaml -}}
{{- with $identity.credentials }}
- secret:
    name: {{ .name }}
    items: [{key: {{ default "headway.creds" .key }}, path: credentials}]
{{- end }}
{{- with $identity.nkey }}
- secret:
    name: {{ .name }}
    items: [{key: {{ default "seed" .key }}, path: nkey}]
{{- end }}
{{- with .root.Values.nats.tls.ca }}{{ if .name }}
- secret:
    name: {{ .name }}
    items: [{key: {{ default "ca.crt" .key }}, path: ca.crt}]
{{- end }}{{ end }}
{{- with .root.Values.nats.tls.client }}{{ if .name }}
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
