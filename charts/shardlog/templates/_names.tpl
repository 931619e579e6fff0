{{- define "shardlog.fullname" -}}
{{- default .Release.Name .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* Of one component: (dict "top" $ "component" "node") */}}
{{- define "shardlog.selectorLabels" -}}
app.kubernetes.io/name: shardlog
app.kubernetes.io/instance: {{ .top.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "shardlog.labels" -}}
{{ include "shardlog.selectorLabels" . }}
app.kubernetes.io/version: {{ .top.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .top.Release.Service }}
app.kubernetes.io/part-of: shardlog
helm.sh/chart: {{ printf "%s-%s" .top.Chart.Name .top.Chart.Version }}
{{- with .top.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* (dict "top" $ "image" .Values.nodes.image) */}}
{{- define "shardlog.image" -}}
{{- printf "%s:%s" .image.repository (default .top.Chart.AppVersion .image.tag) -}}
{{- end -}}

{{- define "shardlog.tlsSecret" -}}
{{- if eq .Values.tls.mode "secret" -}}
{{- .Values.tls.secretName -}}
{{- else -}}
{{- default (printf "%s-tls" (include "shardlog.fullname" .)) .Values.tls.secretName -}}
{{- end -}}
{{- end -}}

{{- define "shardlog.keySecret" -}}
{{- default (printf "%s-cluster-key" (include "shardlog.fullname" .)) .Values.clusterKey.secretName -}}
{{- end -}}

{{- define "shardlog.etcdPrefix" -}}
{{- default (printf "/shardlog/%s/" .Release.Namespace) .Values.etcd.prefix -}}
{{- end -}}

{{/* Where the operator finds etcd, separated by commas. */}}
{{- define "shardlog.etcdEndpoints" -}}
{{- if .Values.etcd.bundled -}}
{{- $name := printf "%s-etcd" (include "shardlog.fullname" .) -}}
{{- $endpoints := list -}}
{{- range $member := until 3 -}}
{{- $endpoints = append $endpoints (printf "%s-%d.%s.%s.svc:2379" $name $member $name $.Release.Namespace) -}}
{{- end -}}
{{- join "," $endpoints -}}
{{- else -}}
{{- join "," .Values.etcd.external.endpoints -}}
{{- end -}}
{{- end -}}

{{/* What a certificate must be valid for: nodes, their shards' Services, the operators, etcd. */}}
{{- define "shardlog.certificateNames" -}}
{{- $name := include "shardlog.fullname" . -}}
{{- $namespace := .Release.Namespace -}}
{{- $names := list "localhost" $name -}}
{{- range $suffix := list (printf "%s.svc" $namespace) (printf "%s.svc.cluster.local" $namespace) -}}
{{- $names = concat $names (list (printf "*.%s" $suffix) (printf "*.%s-nodes.%s" $name $suffix) (printf "*.%s-etcd.%s" $name $suffix)) -}}
{{- end -}}
{{- toYaml $names -}}
{{- end -}}

{{- define "shardlog.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "shardlog.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* What nodeSelector and the like look like everywhere. */}}
{{- define "shardlog.scheduling" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}
