{{- /* Release `tailrace` gives tailrace-operator, any other one <release>-tailrace-operator. */ -}}
{{- define "tailrace.fullname" -}}
{{- $name := default "tailrace-operator" .Values.nameOverride -}}
{{- $full := printf "%s-%s" .Release.Name $name -}}
{{- if or (eq .Release.Name "tailrace") (eq .Release.Name $name) -}}
{{- $full = $name -}}
{{- end -}}
{{- default $full .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "tailrace.selector" -}}
app.kubernetes.io/name: tailrace-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tailrace.labels" -}}
{{ include "tailrace.selector" . }}
app.kubernetes.io/part-of: tailrace
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{- end -}}

{{- define "tailrace.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "tailrace.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is empty: name the ServiceAccount to use, or set serviceAccount.create" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- /* Takes (list image appVersion). */ -}}
{{- define "tailrace.image" -}}
{{- $image := index . 0 -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default (index . 1) $image.tag) -}}
{{- end -}}
{{- end -}}

{{- /* What the operator does in each namespace that it watches; nothing here reaches beyond Replicators' own objects
       except reading Secrets and ConfigMaps that specs name. */ -}}
{{- define "tailrace.rules" -}}
- apiGroups: [tailrace.dev]
  resources: [replicators, snapshotrequests]
  verbs: [get, list, watch, patch, update]
- apiGroups: [tailrace.dev]
  resources: [replicators/status, snapshotrequests/status, replicators/finalizers, snapshotrequests/finalizers]
  verbs: [get, patch, update]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, update, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, update, delete]
- apiGroups: [""]
  resources: [configmaps, secrets, serviceaccounts, services]
  verbs: [get, list, watch, create, patch, update, delete]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [rolebindings]
  verbs: [get, list, watch, create, patch, update, delete]
# The one ClusterRole that it may hand on, to its drivers.
- apiGroups: [rbac.authorization.k8s.io]
  resources: [clusterroles]
  resourceNames: [tailrace-driver]
  verbs: [bind]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, delete]
- apiGroups: ["", events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}
