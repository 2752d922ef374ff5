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

{{- define "tailrace.consoleSelector" -}}
app.kubernetes.io/name: tailrace-console
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tailrace.consoleLabels" -}}
{{ include "tailrace.consoleSelector" . }}
{{ include "tailrace.commonLabels" . }}
{{- end -}}

{{- define "tailrace.labels" -}}
{{ include "tailrace.selector" . }}
{{ include "tailrace.commonLabels" . }}
{{- end -}}

{{- define "tailrace.commonLabels" -}}
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

{{- /* Who may connect to drivers over HTTP, as JSON; []: anyone. Whoever scrapes them may come from anywhere, unless
       networkPolicy.from names it. */ -}}
{{- define "tailrace.driverPeers" -}}
{{- $here := dict "matchLabels" (dict "kubernetes.io/metadata.name" .Release.Namespace) -}}
{{- $operator := dict "matchLabels" (include "tailrace.selector" . | fromYaml) -}}
{{- $peers := list -}}
{{- if or .Values.networkPolicy.from (not .Values.metrics.podMonitor.enabled) -}}
{{- $peers = prepend .Values.networkPolicy.from (dict "namespaceSelector" $here "podSelector" $operator) -}}
{{- if (.Values.console).enabled -}}
{{- $console := dict "matchLabels" (include "tailrace.consoleSelector" . | fromYaml) -}}
{{- $peers = append $peers (dict "namespaceSelector" $here "podSelector" $console) -}}
{{- end -}}
{{- end -}}
{{- toJson $peers -}}
{{- end -}}

{{- /* Permissions of the operator in each namespace that it watches. It reads the Secrets and ConfigMaps that specs name
       to notice changes, stops drivers by deleting their StatefulSets, replaces the Job that cleans up after a deleted
       Replicator when that is edited, and deletes their NetworkPolicies when networkPolicy.drivers is turned off; other
       objects are deleted with their Replicator. */ -}}
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
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [batch]
  resources: [cronjobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [configmaps, serviceaccounts, services]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch, create]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [rolebindings]
  verbs: [get, list, watch, create, patch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
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

{{- /* All that the console may do by itself: no Secrets, no pods, no change of anything. */ -}}
{{- define "tailrace.consoleRules" -}}
- apiGroups: [tailrace.dev]
  resources: [replicators, snapshotrequests]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [events]
  verbs: [get, list, watch]
{{- end -}}
