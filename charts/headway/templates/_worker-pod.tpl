{{/* The pod of a worker. Takes root, worker, name, labels and selected. */}}
{{- define "headway.workerPod" -}}
{{- $worker := .worker -}}
{{- $cache := $worker.cache -}}
{{- $process := dict "root" .root "role" "workers" "config" .name "secret" (include "headway.workerSecret" .root) -}}
{{- $hasClaim := or $cache.existingClaim (get (default (dict) $cache.ephemeral) "size") -}}
{{ include "headway.podBasics" (dict "root" .root "account" (include "headway.workerAccount" .root) "priority" $worker.priorityClassName) }}
automountServiceAccountToken: false
{{- with $worker.runtimeClassName }}
runtimeClassName: {{ . | quote }}
{{- end }}
# SIGTERM begins the drain by itself, so there is no preStop that would use up its time. drainSeconds to go on, 10 seconds to
# hand back, the rest to stop the engine.
terminationGracePeriodSeconds: {{ add (int $worker.drainSeconds) 30 }}
securityContext:
  {{- include "headway.podSecurity" (dict "root" .root "hasClaim" $hasClaim) | nindent 2 }}
{{- with include "headway.placement" $worker }}
{{ . }}
{{- end }}
topologySpreadConstraints:
  {{- if kindIs "invalid" $worker.topologySpreadConstraints }}
  # Not over nodes: GPUs of one node should fill up, so that empty nodes can go.
  - topologyKey: topology.kubernetes.io/zone
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "headway.selector" .labels | nindent 8 }}
        {{- toYaml .selected | nindent 8 }}
    matchLabelKeys: [pod-template-hash]
  {{- else }}
  {{- toYaml $worker.topologySpreadConstraints | nindent 2 }}
  {{- end }}
containers:
  - name: worker
    image: {{ include "headway.image" (dict "root" .root "image" $worker.image "gpus" $worker.gpus) }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    args: [worker]
    env:
      {{- include "headway.env" (dict "ours" (include "headway.workerEnv" .) "own" $worker.extraEnv) | nindent 6 }}
    ports:
      - {name: health, containerPort: 4281}
      - {name: metrics, containerPort: 9464}
    {{- include "headway.probes" $worker | nindent 4 }}
    resources:
      {{- include "headway.workerResources" $worker | nindent 6 }}
    securityContext:
      {{- include "headway.containerSecurity" .root | nindent 6 }}
    volumeMounts:
      {{- include "headway.volumeMounts" (merge (dict "own" $worker.extraVolumeMounts) $process) | trim | nindent 6 }}
      - {name: cache, mountPath: /cache}
      {{- if gt (int $worker.gpus) 1 }}
      - {name: shm, mountPath: /dev/shm}
      {{- end }}
volumes:
  {{- include "headway.volumes" (merge (dict "own" $worker.extraVolumes) $process) | trim | nindent 2 }}
  - name: cache
    {{- include "headway.cacheVolume" $cache | nindent 4 }}
  {{- if gt (int $worker.gpus) 1 }}
  # The GPUs of a pod exchange data through it where no link between them serves; containers have 64 MiB by default. What
  # is used of it counts as memory of the container.
  - name: shm
    emptyDir: {medium: Memory, sizeLimit: 4Gi}
  {{- end }}
{{- end -}}

{{- define "headway.workerEnv" -}}
- {name: HEADWAY_CONFIG, value: /etc/headway/config/headway.yaml}
# Who looks at the logs, records and deletion costs finds the pod by it.
- name: HEADWAY_WORKER_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- $settings := include "headway.workerSettings" . | fromYaml }}
{{- $bound := "" }}
{{- range $kind := list "requests" "limits" }}
{{- if get (default (dict) (get $.worker.resources $kind)) "cpu" }}{{ $bound = $kind }}{{ end }}
{{- end }}
{{- if and $bound (not (hasKey $settings.engine "num_threads")) }}
# Cores of the container; torch would count those of the node.
- name: HEADWAY_NUM_THREADS
  valueFrom: {resourceFieldRef: {resource: {{ $bound }}.cpu, divisor: "1"}}
{{- end }}
{{- include "headway.natsEnv" (dict "root" .root "role" "workers") }}
{{ include "headway.cacheEnv" "/cache" }}
- {name: HEADWAY_CACHE_FOLDER, value: /cache/headway}
{{- with .worker.huggingFaceToken }}
{{- if .name }}
- name: HF_TOKEN
  valueFrom:
    secretKeyRef: {name: {{ .name }}, key: {{ default "token" .key }}}
{{- end }}
{{- end }}
{{- end -}}

{{/* The resources with the GPUs, which count as limits. Takes a worker. */}}
{{- define "headway.workerResources" -}}
{{- $resources := deepCopy .resources -}}
{{- if gt (int .gpus) 0 -}}
{{- $_ := set $resources "limits" (set (default (dict) $resources.limits) .gpuResource (int .gpus | toString)) -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end -}}

{{- define "headway.cacheVolume" -}}
{{- $ephemeral := default (dict) .ephemeral -}}
{{- if .existingClaim -}}
persistentVolumeClaim: {claimName: {{ .existingClaim | quote }}}
{{- else if $ephemeral.size -}}
ephemeral:
  volumeClaimTemplate:
    spec:
      accessModes: [ReadWriteOnce]
      {{- with $ephemeral.storageClassName }}
      storageClassName: {{ . | quote }}
      {{- end }}
      resources: {requests: {storage: {{ $ephemeral.size }}}}
{{- else -}}
emptyDir:
  {{- toYaml (default (dict) .emptyDir) | nindent 2 }}
{{- end -}}
{{- end -}}
