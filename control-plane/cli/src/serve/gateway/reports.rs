//! Reports of a gateway to the control plane: services that failed recently, and items that are not served as accepted.

use std::sync::Arc;

use asp_gateway::gateway::Gateway;
use asp_xds::client::ReportSources;
use asp_xds::degraded_items::DegradedItem;
use asp_xds::failing_upstreams::FailingUpstream;

/// Returns the sources of a gateway's reports.
pub(super) fn sources(gateway: &Arc<Gateway>) -> ReportSources {
    let failing = Arc::clone(gateway);
    let degraded = Arc::clone(gateway);
    ReportSources {
        failing: Arc::new(move || list_failing(&failing)),
        degraded: Arc::new(move || list_degraded(&degraded)),
    }
}

fn list_failing(gateway: &Gateway) -> Vec<FailingUpstream> {
    let failing = gateway.failing_upstreams().into_iter();
    let reported = failing.map(|failure| FailingUpstream {
        server: failure.server,
        origin: failure.origin,
        breaker: failure.breaker.to_owned(),
        failed_at: failure.failed_at,
        cause: failure.cause,
    });
    reported.collect()
}

/// Lists the plugins that cannot run, which nobody can call, before the items of upstreams.
fn list_degraded(gateway: &Gateway) -> Vec<DegradedItem> {
    let plugins = gateway.unavailable_plugins();
    let plugins = plugins.iter().map(|plugin| DegradedItem {
        source: plugin.language.clone(),
        item: plugin.name.clone(),
        state: "off".to_owned(),
        cause: plugin.reason.clone(),
    });
    let drifted = gateway.drifted_items().into_iter().map(|item| DegradedItem {
        source: item.upstream,
        item: item.name,
        state: item.standing.to_owned(),
        cause: String::new(),
    });
    plugins.chain(drifted).collect()
}
