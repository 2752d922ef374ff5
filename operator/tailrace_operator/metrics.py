"""The operator's own metrics, and the gauges that `handlers.gauges` reads off the index at each scrape."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry()

API_CALLS = Counter(
    "tailrace_operator_api_requests", "Requests to the API server", ["method", "kind", "code"], registry=REGISTRY
)
ROUNDS = Counter(
    "tailrace_operator_reconciles", "Rounds of the loop by outcome", ["kind", "outcome"], registry=REGISTRY
)
ROUND_SECONDS = Histogram(
    "tailrace_operator_reconcile_seconds", "Duration of a round of the loop in seconds", ["kind"], registry=REGISTRY
)
STATUS_WRITES = Counter("tailrace_operator_status_writes", "Status writes", ["kind"], registry=REGISTRY)
WATCH_STARTS = Counter("tailrace_operator_watch_starts", "Lists and watches started", ["kind"], registry=REGISTRY)
QUEUE = Gauge("tailrace_operator_queue_length", "Objects that are due", registry=REGISTRY)
OVERDUE = Gauge(
    "tailrace_operator_overdue_seconds",
    "How long the oldest due object has been waiting, in seconds",
    registry=REGISTRY,
)
REFUSED = Gauge(
    "tailrace_operator_refused_namespaces",
    "1: the API server refuses to list something in this watched namespace",
    ["namespace"],
    registry=REGISTRY,
)
LEADER = Gauge("tailrace_operator_leader", "1: this process holds the lease", registry=REGISTRY)
