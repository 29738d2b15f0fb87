{{- define "aerobee.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "aerobee.labels" -}}
app.kubernetes.io/name: aerobee
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "aerobee.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* Every name server by its own name: clients and brokers use all of them. */}}
{{- define "aerobee.nameServers" -}}
{{- $name := include "aerobee.name" . -}}
{{- range $i := until (int .Values.nameServers.replicas) -}}
{{- if $i }};{{ end }}{{ $name }}-namesrv-{{ $i }}.{{ $name }}-namesrv:9876
{{- end -}}
{{- end -}}

{{- define "aerobee.podSecurity" -}}
runAsNonRoot: true
runAsUser: 999
runAsGroup: 999
fsGroup: 999
seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "aerobee.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end -}}

{{- define "aerobee.probes" -}}
readinessProbe: { httpGet: { path: /readyz, port: http }, periodSeconds: 5 }
livenessProbe: { httpGet: { path: /healthz, port: http }, periodSeconds: 10 }
# A store with much to recover needs time before it answers.
startupProbe: { httpGet: { path: /healthz, port: http }, periodSeconds: 5, failureThreshold: 120 }
{{- end -}}

{{- define "aerobee.placement" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if eq .antiAffinity "required" }}
affinity:
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector: { matchLabels: { app: {{ .app }} } }
{{- else if eq .antiAffinity "preferred" }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector: { matchLabels: { app: {{ .app }} } }
{{- end }}
{{- end -}}

{{- define "aerobee.claim" -}}
metadata:
  name: {{ .name }}
spec:
  accessModes: [ReadWriteOnce]
  {{- with .storage.storageClassName }}
  storageClassName: {{ . }}
  {{- end }}
  resources:
    requests: { storage: {{ .storage.size }} }
{{- end -}}

{{/* TLS with a certificate of a Secret, in all daemons. */}}
{{- define "aerobee.tlsEnv" -}}
{{- if .Values.tls.secretName }}
- { name: AEROBEE_TLS_SERVER_MODE, value: {{ .Values.tls.mode }} }
- { name: AEROBEE_TLS_SERVER_CERT_PATH, value: /etc/aerobee/tls/tls.crt }
- { name: AEROBEE_TLS_SERVER_KEY_PATH, value: /etc/aerobee/tls/tls.key }
{{- end }}
{{- end -}}

{{- define "aerobee.tlsMount" -}}
{{- if .Values.tls.secretName }}
- { name: tls, mountPath: /etc/aerobee/tls, readOnly: true }
{{- end }}
{{- end -}}

{{- define "aerobee.tlsVolume" -}}
{{- with .Values.tls.secretName }}
- { name: tls, secret: { secretName: {{ . }}, defaultMode: 0440 } }
{{- end }}
{{- end -}}

{{- define "aerobee.settingsSecret" -}}
{{- with . }}
envFrom:
  - secretRef: { name: {{ . }} }
{{- end }}
{{- end -}}

{{/* A setting as an option. Helm has whole numbers as floats, which print as 1e+09 from a million on. */}}
{{- define "aerobee.setting" -}}
{{- $value := .value -}}
{{- if kindIs "float64" $value }}{{ if eq (floor $value) $value }}{{ $value = int64 $value }}{{ end }}{{ end -}}
{{- printf "--set=%s=%v" .key $value -}}
{{- end -}}
