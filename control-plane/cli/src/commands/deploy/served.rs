//! The wait until a deployment is served: published, acknowledged by every edge and gateway, and its plugins installed.

use std::collections::BTreeSet;
use std::time::Duration;

use asp_command::failure::Failure;
use asp_command::print;
use serde_json::Value;
use tokio::time::Instant;

use super::super::answer::{is, list, number, text};
use super::super::client::AdminClient;

const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Consecutive looks at which plugins must not be reported as off: a gateway asks its runtimes only after it has the specs.
const PLUGIN_LOOKS: u32 = 4;

/// A deployment to wait for.
pub(super) struct Target<'a> {
    /// Store revision that contains all of it.
    pub(super) revision: u64,
    pub(super) servers: BTreeSet<&'a str>,
    /// Plugins of these servers, by `<id>@<version>`.
    pub(super) plugins: BTreeSet<String>,
}

/// The reason why a deployment is not served.
#[derive(Debug, PartialEq)]
struct Gap {
    reason: String,
    /// Whether waiting does not help.
    is_final: bool,
}

impl Gap {
    fn passing(reason: String) -> Option<Gap> {
        Some(Gap { reason, is_final: false })
    }

    fn lasting(reason: String) -> Option<Gap> {
        Some(Gap { reason, is_final: true })
    }
}

/// Waits; fails with the reason if it is not served in time, or cannot be.
pub(super) async fn wait(api: &AdminClient, target: &Target<'_>, longest: Duration) -> Result<(), Failure> {
    let until = Instant::now() + longest;
    let needed = if target.plugins.is_empty() { 1 } else { PLUGIN_LOOKS };
    let mut looks = 0;
    loop {
        let status = api.get("/api/snapshot").await?.accepted()?;
        let gap = match snapshot_gap(&status, target) {
            None if target.plugins.is_empty() => None,
            None => plugin_gap(&api.get("/api/runtimes").await?.accepted()?, target),
            gap => gap,
        };
        match gap {
            None => looks += 1,
            Some(gap) if gap.is_final || Instant::now() >= until => {
                let seconds = longest.as_secs();
                let time = if gap.is_final { String::new() } else { format!(" after {seconds} s") };
                print::error(&format!("it is applied, but not served{time}: {}", gap.reason));
                return Err(Failure::Refused);
            }
            Some(_) => looks = 0,
        }
        if looks >= needed {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Returns what keeps the servers from being in force at every edge and gateway.
fn snapshot_gap(status: &Value, target: &Target<'_>) -> Option<Gap> {
    if number(status, "coversRevision") < target.revision {
        let fault = match text(status, "fault") {
            "" => String::new(),
            fault => format!(": {fault}"),
        };
        return Gap::passing(format!("revision {} is not published{fault}", target.revision));
    }
    let is_ours =
        |fault: &&Value| text(fault, "part") == "server" && target.servers.contains(text(fault, "name"));
    if let Some(fault) = list(status, "faults").find(is_ours) {
        let name = text(fault, "name");
        let why = text(fault, "fault");
        let remedy = text(fault, "wayOut");
        return Gap::lasting(format!("{name}: {why}; remedy: {remedy}"));
    }
    let serves = |subscriber: &&Value| matches!(text(subscriber, "kind"), "gateway" | "edge");
    if !list(status, "subscribers").any(|subscriber| text(subscriber, "kind") == "gateway") {
        return Gap::passing("no gateway is connected to this control plane".to_owned());
    }
    for subscriber in list(status, "subscribers").filter(serves) {
        let kind = text(subscriber, "kind");
        let node = text(subscriber, "node");
        if number(subscriber, "behind") > 0 || is(subscriber, "ahead") {
            return Gap::passing(format!("{kind} {node} has not taken the newest snapshot: `asp status`"));
        }
        let is_ours = |part: &&Value| {
            text(part, "name").strip_prefix("server/").is_some_and(|name| target.servers.contains(name))
        };
        if let Some(part) = list(subscriber, "refusedParts").find(is_ours) {
            return Gap::lasting(format!(
                "{kind} {node} refused {}: {}",
                text(part, "name"),
                text(part, "reason")
            ));
        }
    }
    None
}

/// Returns the first plugin that no runtime can run.
fn plugin_gap(runtimes: &Value, target: &Target<'_>) -> Option<Gap> {
    let mut all = runtimes.as_array().into_iter().flatten().flat_map(|runtime| list(runtime, "off"));
    let off = all.find(|off| target.plugins.contains(text(off, "plugin")))?;
    let plugin = text(off, "plugin");
    let why = text(off, "why");
    let remedy = match text(off, "wayOut") {
        "" if why.starts_with("not_installed") => {
            "install it where its runtime is, by `asp plugin install --from URL --plugins DIR`, or by `asp deploy --plugins \
             DIR` if that is on this machine"
        }
        "" => "`asp status` and the runtime's log show more",
        remedy => remedy,
    };
    Gap::passing(format!("{plugin} is off: {why}; {remedy}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn target() -> Target<'static> {
        Target { revision: 7, servers: ["greet"].into(), plugins: ["greet@1.0.0".to_owned()].into() }
    }

    fn reason(gap: Option<Gap>) -> (String, bool) {
        gap.map(|gap| (gap.reason, gap.is_final)).unwrap_or_default()
    }

    #[test]
    fn a_deployment_is_in_force_once_it_is_published_and_no_edge_or_gateway_is_behind() {
        let gateway = json!({ "kind": "gateway", "node": "gw-1", "behind": 0 });
        let edge = |behind: u64| json!({ "kind": "edge", "node": "e", "behind": behind });
        let other = json!({ "kind": "revocations", "node": "e", "behind": 3 });
        let of = |covers: u64, subscribers: &[&Value]| {
            reason(snapshot_gap(&json!({ "coversRevision": covers, "subscribers": subscribers }), &target()))
                .0
        };
        assert_eq!(of(7, &[&gateway, &edge(0), &other]), "");
        assert_eq!(of(6, &[&gateway]), "revision 7 is not published");
        assert_eq!(of(7, &[&edge(0)]), "no gateway is connected to this control plane");
        assert!(of(7, &[&gateway, &edge(1)]).starts_with("edge e has not taken"));
    }

    #[test]
    fn a_fault_of_a_server_of_the_deployment_ends_the_wait_and_that_of_another_does_not() {
        let fault = |name: &str| json!({ "part": "server", "name": name, "fault": "too large", "wayOut": "split it" });
        let gateway = |part: &str| {
            let refused = json!([{ "name": part, "reason": "bad schema" }]);
            json!({ "kind": "gateway", "node": "gw", "behind": 0, "refusedParts": refused })
        };
        let of = |fault: Value, gateway: Value| {
            let status = json!({ "coversRevision": 9, "faults": [fault], "subscribers": [gateway] });
            reason(snapshot_gap(&status, &target()))
        };
        assert_eq!(of(fault("crm"), gateway("server/crm")), (String::new(), false));
        assert_eq!(
            of(fault("greet"), gateway("server/crm")),
            ("greet: too large; remedy: split it".into(), true)
        );
        assert_eq!(
            of(fault("crm"), gateway("server/greet")),
            ("gateway gw refused server/greet: bad schema".into(), true)
        );
    }

    #[test]
    fn a_plugin_that_is_off_is_named_with_its_remedy() {
        let of = |plugin: &str, why: &str, remedy: &str| {
            let off = json!([{ "plugin": plugin, "why": why, "wayOut": remedy }]);
            reason(plugin_gap(&json!([{ "off": [] }, { "off": off }]), &target())).0
        };
        assert_eq!(of("crm@1.0.0", "not_installed: x", ""), "");
        assert!(
            of("greet@1.0.0", "not_installed: greet@1.0.0", "")
                .contains("`asp plugin install --from URL --plugins DIR`")
        );
        assert_eq!(of("greet@1.0.0", "no java", "install it"), "greet@1.0.0 is off: no java; install it");
    }
}
