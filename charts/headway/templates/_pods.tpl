{{/* What pods have in common: security, images, environment, volumes, probes. */}}

{{/* The image: that of `image`, with the ending for CUDA where there is a GPU, unless the entry names another. Takes root,
and of a worker image and gpus. */}}
{{- define "headway.image" -}}
{{- $all := .root.Values.image -}}
{{- $own := default (dict) .image -}}
{{- $tag := default .root.Chart.AppVersion $all.tag -}}
{{- if gt (int .gpus) 0 }}{{ $tag = printf "%s%s" $tag $all.cudaSuffix }}{{ end -}}
{{- $digest := ternary $own.digest $all.digest (or $own.digest $own.tag $own.repository | empty | not) -}}
{{ default $all.repository $own.repository }}
{{- if $digest }}@{{ $digest }}{{ else }}:{{ default $tag $own.tag }}{{ end -}}
{{- end -}}

{{/* The pod's part of the restricted Pod Security Standard. No user ID: the image has one that is not root, and OpenShift
gives its own. Takes root and hasClaim. */}}
{{- define "headway.podSecurity" -}}
runAsNonRoot: true
seccompProfile: {type: RuntimeDefault}
{{- if and .hasClaim .root.Values.volumeGroup }}
{{- $group := .root.Values.volumeGroup }}
{{- if eq (toString $group) "auto" }}
{{- $group = ternary nil 65532 (.root.Capabilities.APIVersions.Has "security.openshift.io/v1") }}
{{- end }}
{{- with $group }}
fsGroup: {{ int . }}
fsGroupChangePolicy: OnRootMismatch
{{- end }}
{{- end }}
{{- end -}}

{{- define "headway.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* First lines of every pod's spec. Kubernetes would else give each container variables named after the Services of
the namespace (HEADWAY_QUEUE_PORT=tcp://…), which Headway refuses as unknown settings. Takes root, account, priority. */}}
{{- define "headway.podBasics" -}}
serviceAccountName: {{ .account }}
enableServiceLinks: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priority }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Where a pod may run. Takes what has nodeSelector, tolerations and affinity. */}}
{{- define "headway.placement" -}}
{{- $placement := dict -}}
{{- range $field := list "nodeSelector" "tolerations" "affinity" -}}
{{- with get $ $field }}{{ $_ := set $placement $field . }}{{ end -}}
{{- end -}}
{{- if $placement }}{{ toYaml $placement }}{{ end -}}
{{- end -}}

{{/* The same for what needs no GPU: it prefers nodes without one, unless it is told where to run. */}}
{{- define "headway.placementOffGpus" -}}
{{- $labels := list "nvidia.com/gpu.present" "cloud.google.com/gke-accelerator" "kubernetes.azure.com/accelerator" -}}
{{- $absent := list -}}
{{- range $labels }}{{ $absent = append $absent (dict "key" . "operator" "DoesNotExist") }}{{ end -}}
{{- $preferred := list (dict "weight" 100 "preference" (dict "matchExpressions" $absent)) -}}
{{- $off := dict "nodeAffinity" (dict "preferredDuringSchedulingIgnoredDuringExecution" $preferred) -}}
{{- $told := or .nodeSelector .affinity -}}
{{- include "headway.placement" (merge (dict "affinity" (ternary .affinity $off (not (empty $told)))) .) -}}
{{- end -}}

{{/* Where anything is written: nowhere else than on the two volumes. Every library that keeps a cache is told so, since the
root is read-only and the user may have no home. Takes the folder. */}}
{{- define "headway.cacheEnv" -}}
- {name: HOME, value: {{ . }}/home}
- {name: XDG_CACHE_HOME, value: {{ . }}}
- {name: XDG_CONFIG_HOME, value: {{ . }}/config}
- {name: HF_HOME, value: {{ . }}/huggingface}
- {name: TORCH_HOME, value: {{ . }}/torch}
- {name: TORCHINDUCTOR_CACHE_DIR, value: {{ . }}/inductor}
- {name: TRITON_HOME, value: {{ . }}/triton}
- {name: TRITON_CACHE_DIR, value: {{ . }}/triton/cache}
- {name: CUDA_CACHE_PATH, value: {{ . }}/cuda}
- {name: TMPDIR, value: /tmp}
{{- end -}}

{{/* Probes of grpc.health.v1 on a plain port of their own: kubelet cannot do TLS. Three services, three answers. Takes
startupSeconds. */}}
{{- define "headway.probes" -}}
startupProbe:
  grpc: {port: 4281, service: startup}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: {{ div (add (int .startupSeconds) 4) 5 }}
readinessProbe:
  grpc: {port: 4281, service: readiness}
  periodSeconds: 5
  timeoutSeconds: 5
livenessProbe:
  grpc: {port: 4281, service: liveness}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end -}}

{{/* Environment variables: ours, and those of one's own, which win (a name that is there twice is refused by the API server).
Takes ours (as YAML) and own. */}}
{{- define "headway.env" -}}
{{- $names := list -}}
{{- range .own }}{{ $names = append $names .name }}{{ end -}}
{{- $kept := list -}}
{{- range .ours | fromYamlArray }}{{ if not (has .name $names) }}{{ $kept = append $kept . }}{{ end }}{{ end -}}
{{- toYaml (concat $kept .own) -}}
{{- end -}}

{{/* Settings and Secrets, as every process reads them. Takes root, role, config (a ConfigMap), secret (with certificates) and
own (more volumes); the last three may be left out. */}}
{{- define "headway.volumes" -}}
{{- if .config }}
- name: config
  configMap: {name: {{ .config }}}
{{- end }}
- name: tmp
  emptyDir: {sizeLimit: 1Gi}
{{- if .secret }}
- name: tls
  secret: {secretName: {{ .secret }}}
{{- end }}
{{- with include "headway.natsSources" . }}
- name: nats
  projected:
    sources:
      {{- . | trim | nindent 6 }}
{{- end }}
{{- with .own }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "headway.volumeMounts" -}}
{{- if .config }}
- {name: config, mountPath: /etc/headway/config, readOnly: true}
{{- end }}
- {name: tmp, mountPath: /tmp}
{{- if .secret }}
- {name: tls, mountPath: /etc/headway/tls, readOnly: true}
{{- end }}
{{- if include "headway.natsSources" . }}
- {name: nats, mountPath: /etc/headway/nats, readOnly: true}
{{- end }}
{{- with .own }}
{{ toYaml . }}
{{- end }}
{{- end -}}
