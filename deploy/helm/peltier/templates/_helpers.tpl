{{- define "peltier.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "peltier.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end -}}

{{- define "peltier.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "peltier.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "peltier.name" .) -}}
{{- end -}}

{{- define "peltier.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}

{{- define "peltier.workerImage" -}}
{{- printf "%s:%s" .Values.worker.image.repository (.Values.worker.image.tag | default .Chart.AppVersion) -}}
{{- end -}}

{{/* "true" if several servers may run at a time. */}}
{{- define "peltier.isReplicated" -}}
{{- if or .Values.autoscaling.enabled (gt (int .Values.replicas) 1) -}}true{{- end -}}
{{- end -}}

{{/* "true" if the volume of the server must outlive it. */}}
{{- define "peltier.isPersistent" -}}
{{- $isLocal := or (not .Values.registry.existingSecret) (not .Values.store.url) -}}
{{- if and .Values.persistence.enabled $isLocal (not (include "peltier.isReplicated" .)) -}}true{{- end -}}
{{- end -}}

{{/* "true" if the port of gRPC has a certificate. */}}
{{- define "peltier.hasGrpcTls" -}}
{{- if and .Values.grpc.enabled .Values.grpc.tlsSecret -}}true{{- end -}}
{{- end -}}

{{- define "peltier.check" -}}
{{- if not .Values.auth.existingSecret -}}
{{- fail "auth.existingSecret is empty: name a Secret with the key PELTIER_ADMIN_KEY" -}}
{{- end -}}
{{- if and (include "peltier.isReplicated" .) (or (not .Values.registry.existingSecret) (not .Values.store.url)) -}}
{{- fail "several servers share their state: set registry.existingSecret and store.url, or set replicas to 1" -}}
{{- end -}}
{{- if and .Values.worker.enabled (or (not .Values.registry.existingSecret) (not .Values.store.url)) -}}
{{- fail "workers share the state of the servers: set registry.existingSecret and store.url, or disable the workers" -}}
{{- end -}}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.name is empty: name an account, or set serviceAccount.create" -}}
{{- end -}}
{{- if and .Values.grpc.enabled .Values.routing.enabled (eq (int .Values.grpc.port) (int .Values.routing.port)) -}}
{{- fail (printf "grpc.port and routing.port are both %v: choose different ports" .Values.grpc.port) -}}
{{- end -}}
{{- $drain := addf (.Values.settings.lame_duck_seconds | default 2) (.Values.settings.drain_seconds | default 30) -}}
{{- if le (float64 .Values.terminationGracePeriodSeconds) $drain -}}
{{- fail (printf "terminationGracePeriodSeconds is %v: it must be more than lame_duck_seconds and drain_seconds together, %v" .Values.terminationGracePeriodSeconds $drain) -}}
{{- end -}}
{{- end -}}

{{/* The security context of a container, as the image needs it. */}}
{{- define "peltier.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "peltier.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* A value of settings as text. Helm reads all numbers as floats, and would write large ones with an exponent. */}}
{{- define "peltier.setting" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) -}}{{ int64 . }}{{- else -}}{{ . }}{{- end -}}
{{- end -}}

{{/* Where the registry and the artifacts are. */}}
{{- define "peltier.storeEnv" -}}
{{- if .Values.store.url }}
- name: PELTIER_STORE
  value: {{ .Values.store.url | quote }}
{{- end }}
{{- with .Values.registry.existingSecret }}
- name: PELTIER_REGISTRY
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: PELTIER_REGISTRY
{{- end }}
{{- end -}}

{{/* A key of the Secret of auth. */}}
{{- define "peltier.authEnv" -}}
- name: {{ .key }}
  valueFrom:
    secretKeyRef:
      name: {{ .secret }}
      key: {{ .key }}
      {{- if .optional }}
      optional: true
      {{- end }}
{{- end -}}
