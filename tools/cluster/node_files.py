"""Configuration files of the node's programs. Pure: text out of addresses and folders.

Where a line looks odd, the machine is one without systemd, with cgroup v1 or without CAP_SYS_RESOURCE (containers and
CI): such machines are where a one-node cluster is wanted most.
"""

import json
from pathlib import Path

from .control import SERVICE_RANGE

NODE = "tailrace"
NODE_ADDRESS = "172.31.255.1"
"""On a bridge of its own inside the cluster's network namespace."""
POD_RANGE = "10.244.0.0/24"
DNS_ADDRESS = SERVICE_RANGE.rpartition(".")[0] + ".10"
PAUSE_IMAGE = "localhost/tailrace-pause:1"
COREDNS_IMAGE = "localhost/tailrace-coredns:1"


def containerd(state: Path, cni_programs: Path) -> str:
    return f"""version = 2
root = '{state}/containerd'
state = '{state}/containerd-state'
[grpc]
  address = '{state}/containerd.sock'
[plugins.'io.containerd.grpc.v1.cri']
  sandbox_image = '{PAUSE_IMAGE}'
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
[plugins.'io.containerd.grpc.v1.cri'.cni]
  bin_dir = '{cni_programs}'
  conf_dir = '{state}/cni'
"""


def cni(state: Path) -> str:
    bridge = {
        "type": "bridge",
        "bridge": "pods",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": f"{state}/cni-addresses",
            "ranges": [[{"subnet": POD_RANGE}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, ports]})


def kubelet(state: Path, cgroup: str) -> str:
    pki = f"{state}/pki"
    document = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": NODE_ADDRESS,
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "failSwapOn": False,
        "containerRuntimeEndpoint": f"unix://{state}/containerd.sock",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{pki}/kubelet-server.crt",
        "tlsPrivateKeyFile": f"{pki}/kubelet-server.key",
        "clusterDomain": "cluster.local",
        "clusterDNS": [DNS_ADDRESS],
        "resolvConf": f"{state}/resolv.conf",
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "200Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "makeIPTablesUtilChains": False,
        "enforceNodeAllocatable": ["pods"],
        "podLogsDir": f"{state}/pod-logs",
        # A crashed container comes back within 2 s, not 5 min: people watch, and tests wait.
        "crashLoopBackOff": {"maxContainerRestartPeriod": "2s"},
        "featureGates": {"KubeletCrashLoopBackOffMax": True},
    }
    return json.dumps(document, indent=1)


COREDNS = f"""apiVersion: v1
kind: ServiceAccount
metadata: {{name: coredns, namespace: kube-system}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: "system:coredns"}}
rules:
  - {{apiGroups: [""], resources: [services, pods, namespaces], verbs: [list, watch]}}
  - {{apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: "system:coredns"}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:coredns"}}
subjects: [{{kind: ServiceAccount, name: coredns, namespace: kube-system}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: coredns, namespace: kube-system}}
data:
  Corefile: |
    .:53 {{
      errors
      health
      ready
      kubernetes cluster.local in-addr.arpa {{
        ttl 2
      }}
      cache 2
    }}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: coredns, namespace: kube-system}}
spec:
  selector: {{matchLabels: {{k8s-app: kube-dns}}}}
  template:
    metadata: {{labels: {{k8s-app: kube-dns}}}}
    spec:
      serviceAccountName: coredns
      priorityClassName: system-cluster-critical
      dnsPolicy: Default
      containers:
        - name: coredns
          image: {COREDNS_IMAGE}
          imagePullPolicy: Never
          args: [-conf, /etc/coredns/Corefile]
          ports: [{{containerPort: 53, protocol: UDP, name: dns}}, {{containerPort: 53, protocol: TCP, name: dns-tcp}}]
          readinessProbe: {{httpGet: {{path: /ready, port: 8181}}, periodSeconds: 1}}
          resources: {{requests: {{cpu: 5m, memory: 32Mi}}, limits: {{memory: 128Mi}}}}
          volumeMounts: [{{name: config, mountPath: /etc/coredns, readOnly: true}}]
      volumes: [{{name: config, configMap: {{name: coredns}}}}]
---
apiVersion: v1
kind: Service
metadata: {{name: kube-dns, namespace: kube-system}}
spec:
  clusterIP: {DNS_ADDRESS}
  selector: {{k8s-app: kube-dns}}
  ports: [{{name: dns, port: 53, protocol: UDP}}, {{name: dns-tcp, port: 53, protocol: TCP}}]
"""
