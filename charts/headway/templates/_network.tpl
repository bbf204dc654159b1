{{/* `from:` or `to:` with the peers; all of them where none are given. Takes direction and peers. */}}
{{- define "headway.peers" -}}
{{ .direction }}: {{ default list .peers | toJson }}
{{- end -}}

{{/* What every process of ours must reach: names, NATS, the collectors of traces. A policy counts for the port of the pod behind
a Service, and the DNS of OpenShift listens on 5353. Takes root and settings (a list: those of the processes). */}}
{{- define "headway.commonEgress" -}}
- ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}, {port: 5353, protocol: UDP}, {port: 5353, protocol: TCP}]
{{- if .root.Values.nats.enabled }}
- to:
    - podSelector:
        matchLabels:
          {{- include "headway.selector" (dict "root" .root "component" "nats") | nindent 10 }}
  ports: [{port: 4222}]
{{- else }}
- {{ include "headway.peers" (dict "direction" "to" "peers" .root.Values.networkPolicy.egress.natsTo) }}
  ports:
    {{- range include "headway.natsPorts" .root | fromJsonArray }}
    - {port: {{ int . }}}
    {{- end }}
{{- end }}
{{- with include "headway.collectorPorts" .settings | fromJsonArray }}
- ports:
    {{- range . }}
    - {port: {{ int . }}}
    {{- end }}
{{- end }}
{{- with .root.Values.networkPolicy.egress.extra }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The ports of otlp_endpoint (http://collector:4317), each once; as JSON. Takes settings of several processes. */}}
{{- define "headway.collectorPorts" -}}
{{- $ports := list -}}
{{- range . -}}
{{- with dig "telemetry" "otlp_endpoint" "" . -}}
{{- $port := regexFind ":[0-9]+(/.*)?$" . | regexFind "[0-9]+" -}}
{{- $ports = append $ports (int (default "4317" $port)) -}}
{{- end -}}
{{- end -}}
{{- $ports | uniq | toJson -}}
{{- end -}}
