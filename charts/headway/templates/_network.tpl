{{/* `from:` or `to:` with the peers; all of them where none are given. Takes direction and peers. */}}
{{- define "headway.peers" -}}
{{ .direction }}: {{ default list .peers | toJson }}
{{- end -}}

{{/* What every process of ours must reach: names, NATS, the collector of traces. */}}
{{- define "headway.commonEgress" -}}
- ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]
{{- if .Values.nats.enabled }}
- to:
    - podSelector:
        matchLabels:
          {{- include "headway.selector" (dict "root" . "component" "nats") | nindent 10 }}
  ports: [{port: 4222}]
{{- else }}
- {{ include "headway.peers" (dict "direction" "to" "peers" .Values.networkPolicy.egress.natsTo) }}
  ports:
    {{- range include "headway.natsPorts" . | fromJsonArray }}
    - {port: {{ int . }}}
    {{- end }}
{{- end }}
{{- with dig "telemetry" "otlp_endpoint" "" .Values.settings }}
- ports: [{port: {{ regexFind ":[0-9]+" (trimPrefix "://" (regexFind "://.*" .)) | trimPrefix ":" | default "4317" | int }}}]
{{- end }}
{{- with .Values.networkPolicy.egress.extra }}
{{ toYaml . }}
{{- end }}
{{- end -}}
