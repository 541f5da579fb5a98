{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{/* Pods of a release are told apart by these; they cannot change while it lives. */}}
{{- define "shunt.selector" -}}
app.kubernetes.io/name: shunt
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "shunt.labels" -}}
{{ include "shunt.selector" . }}
app.kubernetes.io/component: node-fast-path
{{- end }}

{{- define "shunt.name" -}}
{{ if eq .Release.Name "shunt" }}shunt{{ else }}{{ printf "%s-shunt" .Release.Name | trunc 63 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "shunt.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else if .Values.image.tag }}:{{ .Values.image.tag }}{{ end }}
{{- end }}

{{/* The list of arguments of `shunt run`, of which only what differs from the daemon's defaults is written. */}}
{{- define "shunt.args" -}}
- run
- --runtime-dir={{ .Values.runtimeDir }}
{{- with .Values.interfaces }}
- {{ printf "--interfaces=%s" (join "," .) | quote }}
{{- end }}
{{- with .Values.exclude }}
- {{ printf "--exclude=%s" (join "," .) | quote }}
{{- end }}
{{- if ne .Values.hook "auto" }}
- --hook={{ .Values.hook }}
{{- end }}
{{- if .Values.strict }}
- --strict
{{- end }}
{{- with .Values.watchdog }}
- --watchdog={{ . }}
{{- end }}
{{- if ne .Values.logLevel "info" }}
- --log-level={{ .Values.logLevel }}
{{- end }}
{{- if ne .Values.logFormat "text" }}
- --log-format={{ .Values.logFormat }}
{{- end }}
{{- with .Values.metrics }}
{{- if .enabled }}
- {{ printf "--metrics=%s:%d" (eq .host "node" | ternary "[$(NODE_IP)]" .host) (int .port) | quote }}
{{- end }}
{{- end }}
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}
