{{- /* The name of the application; the context is the root. */ -}}
{{- define "berth.name" -}}
{{- .Values.nameOverride | default "berth" }}
{{- end }}

{{- /*
The prefix of the names of the chart's objects, whatever the release is called; the context is the root. The Leases, the
webhook's Secret and registrations, the priority classes and the account for dry runs belong to the programs, and have
the same names everywhere.
*/ -}}
{{- define "berth.fullname" -}}
{{- .Values.fullnameOverride | default (include "berth.name" .) }}
{{- end }}

{{- /* Labels of every object; the context is the root. */ -}}
{{- define "berth.labels" -}}
app.kubernetes.io/name: {{ include "berth.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* Labels that select the pods of one service; the context is a list: root, name of the service. */ -}}
{{- define "berth.selector" -}}
app.kubernetes.io/name: {{ include "berth.name" (index . 0) }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- /* The image of one service; the context is a list: root, name of the service. */ -}}
{{- define "berth.image" -}}
{{- $root := index . 0 -}}
{{- $service := get $root.Values (index . 1) -}}
{{- with $root.Values.image.prefix }}{{ . }}/{{ end }}{{ $service.image }}
{{- if $service.digest }}@{{ $service.digest }}{{ else }}:{{ $root.Values.image.tag | default $root.Chart.AppVersion }}{{ end }}
{{- end }}

{{- /*
Arguments from options with the names of the program's own. A list gives an option several times, a map gives it with
NAME:VALUE, and true gives it without a value; false and empty ones are left to the program. The context is the map of
options.
*/ -}}
{{- define "berth.arguments" -}}
{{- range $key, $value := . }}
{{- $option := printf "--%s" (kebabcase $key) }}
{{- if kindIs "bool" $value }}
{{- if $value }}
- {{ $option }}
{{- end }}
{{- else if kindIs "slice" $value }}
{{- range $value }}
- {{ printf "%s=%s" $option (include "berth.text" .) | quote }}
{{- end }}
{{- else if kindIs "map" $value }}
{{- range $name, $text := $value }}
- {{ printf "%s=%s:%s" $option $name $text | quote }}
{{- end }}
{{- else if ne (include "berth.text" $value) "" }}
- {{ printf "%s=%s" $option (include "berth.text" $value) | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- /* A text as it is, and a number in full: templates print large ones with an exponent. */ -}}
{{- define "berth.text" -}}
{{- if kindIs "string" . }}{{ . }}{{ else }}{{ toJson . }}{{ end }}
{{- end }}

{{- /* The part of a pod that both services share; the context is a list: root, name of the service, optionally an account. */ -}}
{{- define "berth.pod" -}}
{{- $root := index . 0 -}}
{{- $service := get $root.Values (index . 1) -}}
serviceAccountName: {{ include "berth.fullname" $root }}-{{ last . }}
automountServiceAccountToken: true
# The variables that the kubelet sets for Services, such as BERTH_OPERATOR_PORT, have the prefix of the programs' own.
enableServiceLinks: false
{{- with $service.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "berth.pullSecrets" $root }}
{{- . | nindent 0 }}
{{- end }}
{{- with $service.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with $service.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $service.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $service.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: scratch
    emptyDir:
      sizeLimit: 16Mi
{{- with ($service.rest).tlsSecret }}
  - name: rest-certificate
    secret:
      secretName: {{ . | quote }}
      # The services' user reads it as a member of fsGroup, the group of the volume.
      defaultMode: 0440
{{- end }}
{{- with ($service.webhook).tlsSecret }}
  - name: webhook-certificate
    secret:
      secretName: {{ . | quote }}
      defaultMode: 0440
      # Until it exists, the operator's own certificate serves.
      optional: true
{{- end }}
{{- with $service.extraVolumes }}
{{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* The Secrets for pulling the images; the context is the root. */ -}}
{{- define "berth.pullSecrets" -}}
{{- if or .Values.image.pullSecrets .Values.imagePullSecrets -}}
imagePullSecrets:
  {{- range .Values.image.pullSecrets }}
  - name: {{ . | quote }}
  {{- end }}
  {{- with .Values.imagePullSecrets }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}

{{- /*
How the replicas of a service are spread over the nodes; a constraint without a selector is for the pods of this
service. The context is a list: root, name of the service.
*/ -}}
{{- define "berth.spread" -}}
{{- $service := get (index . 0).Values (index . 1) -}}
{{- $selector := dict "labelSelector" (dict "matchLabels" (include "berth.selector" . | fromYaml)) -}}
{{- with $service.topologySpreadConstraints -}}
topologySpreadConstraints:
  {{- range . }}
  {{- if hasKey . "labelSelector" }}
  {{- list . | toYaml | nindent 2 }}
  {{- else }}
  {{- list (merge (dict) . $selector) | toYaml | nindent 2 }}
  {{- end }}
  {{- end }}
{{- end }}
{{- end }}

{{- /* The part of a container that both services share; the context is a list: root, name of the service. */ -}}
{{- define "berth.container" -}}
{{- $root := index . 0 -}}
{{- $service := get $root.Values (index . 1) -}}
image: {{ include "berth.image" . | quote }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
command: [berth-{{ index . 1 }}]
resources:
  {{- toYaml $service.resources | nindent 2 }}
{{- with $service.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - name: scratch
    mountPath: /tmp
{{- if ($service.rest).tlsSecret }}
  - name: rest-certificate
    mountPath: /etc/berth/rest
    readOnly: true
{{- end }}
{{- if ($service.webhook).tlsSecret }}
  - name: webhook-certificate
    mountPath: /etc/berth/webhook
    readOnly: true
{{- end }}
{{- with $service.extraVolumeMounts }}
{{- toYaml . | nindent 2 }}
{{- end }}
livenessProbe:
  httpGet:
    path: /healthz
    port: health
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet:
    path: /readyz
    port: health
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
{{- end }}

{{- /* Variables of OpenTelemetry, empty where nothing is traced; the context is the root. */ -}}
{{- define "berth.traceEnv" -}}
{{- with .Values.traces }}
{{- if .endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ .endpoint | quote }}
{{- range $name, $value := .env }}
- name: {{ $name }}
  value: {{ include "berth.text" $value | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Labels and annotations of the pods of one service; the context is a list: root, name of the service. */ -}}
{{- define "berth.podMetadata" -}}
{{- $service := get (index . 0).Values (index . 1) -}}
labels:
  {{- include "berth.selector" . | nindent 2 }}
  {{- with $service.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $service.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* The host name of a Service within the cluster; the context is a list: root, what follows the full name. */ -}}
{{- define "berth.serviceHost" -}}
{{ include "berth.fullname" (index . 0) }}-{{ index . 1 }}.{{ (index . 0).Release.Namespace }}.svc
{{- end }}

{{- /* A Certificate of cert-manager for a server; the context is a list: root, name, values, the host that clients call. */ -}}
{{- define "berth.certificate" -}}
{{- $root := index . 0 -}}
{{- $host := index . 3 }}
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ include "berth.fullname" $root }}-{{ index . 1 }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "berth.labels" $root | nindent 4 }}
spec:
  secretName: {{ (index . 2).tlsSecret | quote }}
  {{- if regexMatch "^[0-9.]+$|:" $host }}
  ipAddresses: [{{ $host | quote }}]
  {{- else }}
  dnsNames:
    - {{ $host | quote }}
    {{- if hasSuffix ".svc" $host }}
    - {{ printf "%s.cluster.local" $host | quote }}
    {{- end }}
  {{- end }}
  usages: [digital signature, server auth]
  privateKey: {algorithm: ECDSA, rotationPolicy: Always}
  issuerRef:
    {{- toYaml (index . 2).issuerRef | nindent 4 }}
{{- end }}

{{- /* Roles and bindings of one service; the context is a list: root, name of the service, file with its rules, annotations. */ -}}
{{- define "berth.rbac" -}}
{{- $root := index . 0 -}}
{{- $name := printf "%s-%s" (include "berth.fullname" $root) (index . 1) -}}
{{- $annotations := ternary (last .) (dict) (gt (len .) 3) -}}
{{- $rules := $root.Files.Get (index . 2) | fromYaml -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name }}
  labels:
    {{- include "berth.labels" $root | nindent 4 }}
  {{- with $annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
rules:
  {{- toYaml $rules.clusterRules | nindent 2 }}
  {{- if and $rules.evictionRules $root.Values.operator.evictions.enabled }}
  {{- toYaml $rules.evictionRules | nindent 2 }}
  {{- end }}
  {{- if and $rules.dryRunRules $root.Values.admissionPolicies.enabled (not $root.Values.operator.options.noDryRuns) }}
  {{- toYaml $rules.dryRunRules | nindent 2 }}
  {{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}
  labels:
    {{- include "berth.labels" $root | nindent 4 }}
  {{- with $annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ $name }}
    namespace: {{ $root.Release.Namespace }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "berth.labels" $root | nindent 4 }}
  {{- with $annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
rules:
  {{- toYaml $rules.namespaceRules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "berth.labels" $root | nindent 4 }}
  {{- with $annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ $name }}
    namespace: {{ $root.Release.Namespace }}
{{- end }}

{{- /* Whether replacements are tried by dry run: only if a policy denies their account everything else; the context is the root. */ -}}
{{- define "berth.triesReplacements" -}}
{{- $policies := .Values.admissionPolicies -}}
{{- if and .Values.descheduler.replacementTrial.enabled $policies.enabled (has "Deny" $policies.actions) -}}
true
{{- end }}
{{- end }}

{{- /* A role with its binding to one account; the context is a list: root, kind, name, rules, account. */ -}}
{{- define "berth.grant" -}}
{{- $root := index . 0 -}}
{{- $kind := index . 1 -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ index . 2 }}
  {{- if eq $kind "Role" }}
  namespace: {{ $root.Release.Namespace }}
  {{- end }}
  labels:
    {{- include "berth.labels" $root | nindent 4 }}
rules:
  {{- toYaml (index . 3) | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ index . 2 }}
  {{- if eq $kind "Role" }}
  namespace: {{ $root.Release.Namespace }}
  {{- end }}
  labels:
    {{- include "berth.labels" $root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ index . 2 }}
subjects:
  - kind: ServiceAccount
    name: {{ index . 4 }}
    namespace: {{ $root.Release.Namespace }}
{{- end }}
