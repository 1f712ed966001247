{{- /* Parts of the statuses in real.yaml. They are lists, indented as they stand there. */ -}}

{{- /*
A condition: takes pod, now, type, status, and reason and message where it is False. It keeps its time while its status
stays; a reason that is no longer given is taken away.
*/ -}}
{{- define "condition" }}
{{- $since := .now }}
{{- range .pod.status.conditions }}
{{- if and (eq .type $.type) (eq .status $.status) }}{{ $since = .lastTransitionTime }}{{ end }}
{{- end }}
    - type: {{ .type | Quote }}
      status: {{ .status | Quote }}
      lastTransitionTime: {{ $since | Quote }}
      reason: {{ with .reason }}{{ . | Quote }}{{ else }}null{{ end }}
      message: {{ with .message }}{{ . | Quote }}{{ else }}null{{ end }}
      {{- with .pod.metadata.generation }}
      observedGeneration: {{ . }}
      {{- end }}
{{- end -}}

{{- /* The conditions: takes pod, now, sandbox, initialized, ready, and the reason why a pod is not ready. */ -}}
{{- define "conditions" }}
{{- $reason := or .reason "ContainersNotReady" }}
{{- $unready := list }}{{ range .pod.spec.containers }}{{ $unready = append $unready .name }}{{ end }}
{{- $message := printf "containers with unready status: [%s]" (join " " $unready) }}
{{- if .reason }}{{ $message = "" }}{{ end }}
{{- if eq .ready "True" }}{{ $message = "" }}{{ $reason = "" }}{{ end }}
{{- $of := dict "pod" .pod "now" .now }}
{{- template "condition" merge (dict "type" "PodScheduled" "status" "True") $of }}
{{- template "condition" merge (dict "type" "PodReadyToStartContainers" "status" .sandbox) $of }}
{{- if eq .initialized "True" }}
{{- template "condition" merge (dict "type" "Initialized" "status" "True") $of }}
{{- else }}
{{- $names := list }}{{ range .pod.spec.initContainers }}{{ $names = append $names .name }}{{ end }}
{{- $incomplete := printf "containers with incomplete status: [%s]" (join " " $names) }}
{{- $initialized := dict "type" "Initialized" "status" "False" "reason" "ContainersNotInitialized" }}
{{- template "condition" merge $initialized (dict "message" $incomplete) $of }}
{{- end }}
{{- $readiness := merge (dict "status" .ready "reason" $reason "message" $message) $of }}
{{- template "condition" merge (dict "type" "ContainersReady") $readiness }}
{{- template "condition" merge (dict "type" "Ready") $readiness }}
{{- end -}}

{{- /*
The statuses of the containers: takes pod, now, ready, and their state: waiting, running, restarted, terminated or
unchanged; of a waiting one its reason and message, of a terminated one its reason and exitCode.
*/ -}}
{{- define "containers" }}
{{- range $container := .pod.spec.containers }}
{{- $before := dict }}
{{- range $.pod.status.containerStatuses }}{{ if eq .name $container.name }}{{ $before = . }}{{ end }}{{ end }}
{{- $restarts := printf "%v" (or $before.restartCount 0) | atoi }}
{{- $ran := dig "state" "running" "startedAt" "" $before }}
{{- $last := or $before.lastState dict }}
{{- if and $ran (has $.state (list "waiting" "restarted")) }}
{{- $crash := dict "exitCode" 1 "reason" "Error" "startedAt" $ran "finishedAt" $.now }}
{{- $last = dict "terminated" $crash }}
{{- end }}
    - name: {{ .name | Quote }}
      image: {{ .image | Quote }}
      imageID: ""
      ready: {{ $.ready }}
      started: {{ has $.state (list "running" "restarted" "unchanged") }}
      restartCount: {{ if eq $.state "restarted" }}{{ add1 $restarts }}{{ else }}{{ $restarts }}{{ end }}
      lastState: {{ $last | toJson }}
      {{- if eq $.state "unchanged" }}
      state: {{ $before.state | toJson }}
      {{- else if eq $.state "waiting" }}
      state: {{ dict "waiting" (pick $ "reason" "message") | toJson }}
      {{- else if eq $.state "terminated" }}
      {{- $end := dict "exitCode" $.exitCode "reason" $.reason "startedAt" (or $ran $.now) "finishedAt" $.now }}
      state: {{ dict "terminated" $end | toJson }}
      {{- else }}
      state: {{ dict "running" (dict "startedAt" $.now) | toJson }}
      {{- end }}
      {{- if has $.state (list "running" "restarted" "unchanged") }}
      {{- with dig "resources" "requests" dict $container }}
      allocatedResources: {{ . | toJson }}
      {{- end }}
      resources: {{ or $container.resources dict | toJson }}
      {{- end }}
{{- end }}
{{- end -}}

{{- /* The statuses of the init containers: takes pod, now, and their state: waiting, running, done or terminated. */ -}}
{{- define "initContainers" }}
{{- range $index, $container := .pod.spec.initContainers }}
{{- $sidecar := eq (or .restartPolicy "") "Always" }}
{{- $runs := or (and (eq $.state "running") (eq $index 0)) (and $sidecar (eq $.state "done")) }}
{{- $done := and (not $sidecar) (has $.state (list "done" "terminated")) }}
    - name: {{ .name | Quote }}
      image: {{ .image | Quote }}
      imageID: ""
      ready: {{ or $done (and $sidecar $runs) }}
      started: {{ and $sidecar $runs }}
      restartCount: 0
      {{- if $runs }}
      state: {{ dict "running" (dict "startedAt" $.now) | toJson }}
      {{- else if or $done (eq $.state "terminated") }}
      {{- $end := dict "exitCode" 0 "reason" "Completed" "startedAt" $.now "finishedAt" $.now }}
      state: {{ dict "terminated" $end | toJson }}
      {{- else }}
      state: {waiting: {reason: PodInitializing}}
      {{- end }}
{{- end }}
{{- end -}}
