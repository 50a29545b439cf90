{{- define "eden.labels" -}}
app.kubernetes.io/name: eden-memory
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "eden.all-labels" -}}
{{ include "eden.labels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "eden.fullname" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* A container: dict "root", "name", "args", "resources", "probed" (whether it serves /livez) and "port" (of the API). */}}
{{- define "eden.container" -}}
- name: {{ .name }}
  image: "{{ .root.Values.image.repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}"
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  args: {{ toJson .args }}
  workingDir: /etc/eden
  securityContext:
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: { drop: [ALL] }
  env:
    - { name: EDEN_HTTP_HOST, value: 0.0.0.0 }
    - { name: EDEN_HTTP_PORT, value: "8080" }
    {{- if .port }}
    - { name: EDEN_SERVE_HOST, value: 0.0.0.0 }
    - { name: EDEN_SERVE_PORT, value: {{ .port | quote }} }
    {{- end }}
    {{- range $name, $value := .root.Values.env }}
    - { name: {{ $name }}, value: {{ $value | quote }} }
    {{- end }}
    {{- range $name, $from := .root.Values.secrets }}
    - name: {{ $name }}
      valueFrom: { secretKeyRef: { name: {{ $from.name }}, key: {{ $from.key }} } }
    {{- end }}
  {{- if .probed }}
  ports:
    - { name: health, containerPort: 8080 }
    {{- if .port }}
    - { name: api, containerPort: {{ .port }} }
    {{- end }}
  startupProbe:
    httpGet: { path: /livez, port: health }
    periodSeconds: 2
    failureThreshold: 60
  livenessProbe:
    httpGet: { path: /livez, port: health }
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 6
  readinessProbe:
    httpGet: { path: /readyz, port: health }
    periodSeconds: 10
    timeoutSeconds: 5
  {{- end }}
  resources: {{ toJson .resources }}
  volumeMounts:
    - { name: config, mountPath: /etc/eden/eden.toml, subPath: eden.toml, readOnly: true }
    - { name: tmp, mountPath: /tmp }
    {{- range .root.Values.files }}
    - { name: {{ . }}, mountPath: /etc/eden/files/{{ . }}, readOnly: true }
    {{- end }}
{{- end }}

{{/* What every pod has beside its containers. */}}
{{- define "eden.pod" -}}
serviceAccountName: {{ include "eden.fullname" . }}
automountServiceAccountToken: {{ .Values.serviceAccount.token }}
enableServiceLinks: false # a Service called eden would set EDEN_SERVICE_HOST and others, which are no settings
terminationGracePeriodSeconds: {{ .Values.drainSeconds }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: { type: RuntimeDefault }
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
volumes:
  - name: config
    configMap: { name: {{ include "eden.fullname" . }} }
  - name: tmp
    emptyDir: { sizeLimit: 64Mi }
  {{- range .Values.files }}
  - name: {{ . }}
    secret: { secretName: {{ . }} }
  {{- end }}
{{- end }}

{{/* A Deployment: as "eden.container", and "replicas" (unset where KEDA decides). */}}
{{- define "eden.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "eden.fullname" .root }}-{{ .name }}
  labels:
    {{- include "eden.all-labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .name }}
spec:
  {{- if not (kindIs "invalid" .replicas) }}
  replicas: {{ .replicas }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "eden.labels" .root | nindent 6 }}
      app.kubernetes.io/component: {{ .name }}
  strategy:
    rollingUpdate: { maxUnavailable: 0, maxSurge: 1 }
  template:
    metadata:
      labels:
        {{- include "eden.all-labels" .root | nindent 8 }}
        app.kubernetes.io/component: {{ .name }}
      annotations:
        checksum/config: {{ .root.Values.config | sha256sum }}
        prometheus.io/scrape: "true"
        prometheus.io/port: "8080"
    spec:
      {{- include "eden.pod" .root | nindent 6 }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "eden.labels" .root | nindent 14 }}
              app.kubernetes.io/component: {{ .name }}
      containers:
        {{- include "eden.container" (merge (dict "probed" true) .) | nindent 8 }}
{{- end }}
