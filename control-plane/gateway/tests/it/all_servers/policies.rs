//! I-10 at `/all/mcp`: under random policies a tool is listed exactly if it is known to a call, and exactly if its own
//! server lists it.

use asp_json::generator::Generator;
use asp_proto::snapshot::snapshot_part::Part;
use asp_proto::snapshot::{Binding, ExposureException, OrgPart, Protocol, SnapshotPart, TargetKind};
use asp_snapshot::parts;
use serde_json::json;

use super::{call, fixture, listed, names, wrapped};
use crate::support::{Fixture, Modern, token};

const POLICIES: u64 = 10_000;
const SERVERS: [&str; 2] = ["policy", "shop"];

/// A random policy of the org, often one that hides something.
fn policy(random: &mut Generator) -> OrgPart {
    let protocols = [Protocol::Unspecified, Protocol::Mcp, Protocol::Rest];
    let protocol = |random: &mut Generator| protocols[random.below(protocols.len())];
    let primitives = [
        "*",
        "policy.*",
        "policy.open",
        "policy.wipe",
        "create_*",
        "create_invoice",
        "list_invoices",
        "send_mail",
        "find",
    ];
    let bindings = (0..random.below(6)).map(|_| Binding {
        org: "acme".into(),
        target_kind: TargetKind::User.into(),
        target: random.pick(&["*", "alice", "bob"]).into(),
        primitive: random.pick(&primitives).into(),
        protocol: protocol(random).into(),
        allowed: random.below(2) == 0,
        ..Binding::default()
    });
    let bindings = bindings.collect();
    let mut exposure = Vec::new();
    for server in SERVERS {
        if random.below(4) == 0 {
            let org = "acme".to_owned();
            let protocol = Protocol::Mcp.into();
            let enabled = random.below(3) == 0;
            exposure.push(ExposureException { org, server: server.into(), protocol, enabled });
        }
    }
    OrgPart { org: "acme".into(), bindings, exposure, ..OrgPart::default() }
}

fn put(fixture: &Fixture, revision: u64, policy: OrgPart) {
    let part = SnapshotPart { part: Some(Part::Org(policy)), ..SnapshotPart::default() };
    let changes = vec![(parts::of_org("acme"), Some(part))];
    assert!(fixture.gateway.apply_changes(revision, revision, changes).unwrap().is_empty());
}

/// Returns the tools of all servers as these list them.
async fn own_lists(fixture: &Fixture, token: &str) -> Vec<String> {
    let mut own = Vec::new();
    for server in SERVERS {
        let list = Modern::new(server, token, "tools/list", json!({})).send(fixture).await.json();
        if list.get("result").is_some() {
            own.extend(names(&list).into_iter().map(|tool| format!("{server}__{tool}")));
        }
    }
    own
}

#[tokio::test]
async fn list_and_call_agree_under_ten_thousand_random_policies() {
    let fixture = fixture();
    let alice = token("alice");
    let tools = own_lists(&fixture, &alice).await;
    let mut random = Generator::new(0x5eed);
    let mut shown = 0;
    let mut hidden = 0;
    for revision in 2..POLICIES + 2 {
        let policy = policy(&mut random);
        put(&fixture, revision, policy.clone());
        let list = listed(&fixture, "all", &alice).await;
        for through in [call, wrapped] {
            let tool = &tools[random.below(tools.len())];
            let answer = through(&alice, tool, json!({})).send(&fixture).await;
            let is_listed = list.contains(tool);
            assert_eq!(
                answer.reason() != "unknown_primitive",
                is_listed,
                "{tool}: {policy:?}: {}",
                answer.text
            );
            let count = if is_listed { &mut shown } else { &mut hidden };
            *count += 1;
        }
        if revision % 10 == 0 {
            assert_eq!(list, own_lists(&fixture, &alice).await, "{policy:?}");
        }
    }
    assert!(shown > 2_000 && hidden > 2_000, "{shown} shown, {hidden} hidden");
}
