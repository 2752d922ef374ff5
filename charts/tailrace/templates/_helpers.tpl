{{- /* tailrace-operator for a release called `tailrace`, else <release>-tailrace-operator. */ -}}
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

{{- /* Arguments: (list image appVersion). */ -}}
{{- define "tailrace.image" -}}
{{- $image := index . 0 -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default (index . 1) $image.tag) -}}
{{- end -}}
{{- end -}}

{{- /* Permissions of the operator in each namespace that it watches. It reads the Secrets and ConfigMaps that specs name
       to notice changes, and stops drivers by deleting their StatefulSets; other objects are deleted with their Replicator. */ -}}
{{- define "tailrace.rules" -}}
- apiGroups: [tailrace.dev]
  resources: [replicators, snapshotrequests]
  verbs: [get, list, watch, patch]
- apiGroups: [tailrace.dev]
  resources: [replicators/status, snapshotrequests/status]
  verbs: [patch]
# Owner references with blockOwnerDeletion, where the cluster requires this permission.
- apiGroups: [tailrace.dev]
  resources: [replicators/finalizers]
  verbs: [update]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [configmaps, serviceaccounts, services]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch, create]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [rolebindings]
  verbs: [get, list, watch, create, patch]
# The only ClusterRole that the operator may grant: that of its drivers.
- apiGroups: [rbac.authorization.k8s.io]
  resources: [clusterroles]
  resourceNames: [tailrace-driver]
  verbs: [bind]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [get, list, watch, create, patch]
{{- end -}}
