// Names the Prometheus operator's own types, of which controller-gen makes the schema of a ServiceMonitor.
package monitor

import _ "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
