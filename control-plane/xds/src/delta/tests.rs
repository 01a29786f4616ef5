//! The protocol's cases, without a network.

use asp_proto::snapshot::{BasePart, EdgeSnapshot, RecentRevocations, snapshot_part};
use asp_proto::xds::google::rpc::Status;

use super::*;
use crate::parts::{EncodedPart, PartsBuilder};
use crate::published::{self, Content, Publication};

/// A control plane that publishes parts with one word each.
#[derive(Default)]
struct Control {
    gateway: PartsBuilder,
    recent: RecentRevocations,
    revision: u64,
    published: Option<Arc<Publication>>,
}

impl Control {
    fn publish(&mut self, revision: u64, parts: &[(&str, Option<&str>)]) -> XdsState {
        for (name, said) in parts {
            let base = said.map(|said| BasePart { public_url: said.into(), ..BasePart::default() });
            self.gateway.put(name, base.map(|base| EncodedPart::of(snapshot_part::Part::Base(base))));
        }
        self.revision = revision;
        let content = Content {
            revision,
            edge: Arc::new(EdgeSnapshot::default()),
            recent: Arc::new(self.recent.clone()),
            gateway: self.gateway.parts.clone(),
            changed: std::mem::take(&mut self.gateway.changed),
        };
        let published = published::publish(content, self.published.as_deref(), "/f.wasm");
        self.published = published.map(Arc::new);
        XdsState { snapshot: self.published.clone(), covers: revision, ..XdsState::default() }
    }
}

/// Content of a push: names put and removed, and its version.
fn said(push: Push) -> (Vec<String>, Vec<String>, String) {
    let mut messages: Vec<_> = push.messages().collect();
    let last = messages.pop().unwrap();
    assert!(messages.iter().all(|message| {
        message.system_version_info.is_empty()
            && message.removed_resources.is_empty()
            && message.nonce == last.nonce
    }));
    let all = messages.iter().chain([&last]).flat_map(|message| &message.resources);
    (all.map(|part| part.name.clone()).collect(), last.removed_resources.clone(), last.system_version_info)
}

fn first() -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest { resource_names_subscribe: vec!["*".into()], ..DeltaDiscoveryRequest::default() }
}

fn answer(nonce: &str, error: Option<&str>) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        response_nonce: nonce.into(),
        error_detail: error.map(|text| Status { code: 3, message: text.into() }),
        ..DeltaDiscoveryRequest::default()
    }
}

#[test]
fn a_gateway_gets_everything_once_and_then_what_changed() {
    let mut control = Control::default();
    let mut gateway = DeltaSubscription::default();
    let state =
        control.publish(1, &[("base", Some("a")), ("org/acme", Some("b")), ("org/globex", Some("c"))]);
    assert!(gateway.next_push(&state).is_none(), "it has not asked");
    assert_eq!(gateway.on_request(first(), ""), Event::Subscribed);
    let (put, removed, version) = said(gateway.next_push(&state).unwrap());
    assert_eq!((put.len(), removed.len()), (3, 0));
    assert!(version.starts_with("1-"), "{version}");
    let state = control.publish(2, &[("org/acme", Some("B"))]);
    assert!(gateway.next_push(&state).is_none(), "one push is outstanding");
    assert_eq!(gateway.on_request(answer("gateway-1", None), ""), Event::Acknowledged { revision: 1 });
    assert_eq!(said(gateway.next_push(&state).unwrap()).0, ["org/acme"]);
    gateway.on_request(answer("gateway-2", None), "");
    assert!(gateway.next_push(&state).is_none(), "nothing new");
    // Two changes during a push are sent as one; a reverted change is not sent.
    control.publish(3, &[("org/acme", Some("x")), ("org/new", Some("n"))]);
    let state = control.publish(4, &[("org/acme", Some("B")), ("org/globex", None)]);
    let (put, removed, _) = said(gateway.next_push(&state).unwrap());
    assert_eq!((put, removed), (vec!["org/new".to_owned()], vec!["org/globex".to_owned()]));
}

#[test]
fn what_a_gateway_refused_comes_again_with_the_next_version_and_not_before() {
    let mut control = Control::default();
    let mut gateway = DeltaSubscription::default();
    gateway.on_request(first(), "");
    let state = control.publish(1, &[("base", Some("a"))]);
    gateway.next_push(&state).unwrap();
    gateway.on_request(answer("gateway-1", None), "");
    let state = control.publish(2, &[("org/bad", Some("b"))]);
    gateway.next_push(&state).unwrap();
    assert_eq!(
        gateway.on_request(answer("gateway-2", Some("bad schema")), ""),
        Event::Rejected { revision: 2, reason: "bad schema".into() }
    );
    assert!(gateway.next_push(&state).is_none());
    assert_eq!(gateway.in_force(), 1);
    let state = control.publish(3, &[("org/other", Some("o"))]);
    assert_eq!(said(gateway.next_push(&state).unwrap()).0, ["org/bad", "org/other"]);
    assert_eq!(gateway.on_request(answer("gateway-2", None), ""), Event::Ignored, "of an older push");
}

#[test]
fn a_gateway_that_comes_back_gets_what_it_has_not() {
    let mut control = Control::default();
    let parts = [("base", "a"), ("org/acme", "b"), ("org/new", "n"), ("org/refused", "r")];
    let state = control.publish(5, &parts.map(|(name, said)| (name, Some(said))));
    let version = |name: &str| control.gateway.parts.get(name).unwrap().version_text();
    let has = [
        ("base", version("base")),
        ("org/acme", "0123".to_owned()),
        ("org/gone", "4567".to_owned()),
        ("org/refused", String::new()),
    ];
    let again = DeltaDiscoveryRequest {
        initial_resource_versions: has.map(|(name, version)| (name.to_owned(), version)).into(),
        ..first()
    };
    let mut gateway = DeltaSubscription::default();
    gateway.on_request(again.clone(), "4-abcdef01");
    assert_eq!(gateway.in_force(), 4);
    let (put, removed, _) = said(gateway.next_push(&state).unwrap());
    assert_eq!(
        (put, removed),
        (["org/acme", "org/new", "org/refused"].map(str::to_owned).to_vec(), vec!["org/gone".to_owned()])
    );
    // As after the restore of an older database.
    let mut ahead = DeltaSubscription::default();
    ahead.on_request(again, "9-abcdef01");
    assert!(ahead.next_push(&state).is_none());
    assert_eq!(ahead.take_refusal(), Some(StaleSnapshot { offered: 5, in_force: 9 }));
    assert!(ahead.next_push(&state).is_none() && ahead.take_refusal().is_none(), "it is told once");
    let state = control.publish(10, &[("base", Some("z"))]);
    assert!(ahead.next_push(&state).is_some());
}

#[test]
fn a_build_that_revocations_have_overtaken_is_sent_with_them() {
    let mut control = Control::default();
    let mut gateway = DeltaSubscription::default();
    gateway.on_request(first(), "");
    let state = control.publish(3, &[("base", Some("a"))]);
    gateway.next_push(&state).unwrap();
    gateway.on_request(answer("gateway-1", None), "");
    let recent = |revision| RecentRevocations { revision, ..RecentRevocations::default() };
    let last = control.published.clone().unwrap();
    let ahead = published::with_recent_revocations(&last, recent(6), 3, "/f.wasm").unwrap();
    let state = XdsState { snapshot: Some(Arc::new(ahead)), covers: 3, ..XdsState::default() };
    let (put, _, version) = said(gateway.next_push(&state).unwrap());
    assert_eq!((put, crate::published::reach(&version)), (vec!["recent".to_owned()], (6, 3)));
    gateway.on_request(answer("gateway-2", None), "");

    control.published = state.snapshot;
    control.gateway.put_recent(&recent(7));
    control.recent = recent(7);
    let state = control.publish(5, &[("org/acme", Some("b"))]);
    let (put, _, version) = said(gateway.next_push(&state).unwrap());
    assert_eq!(
        (put, crate::published::reach(&version)),
        (["org/acme", "recent"].map(str::to_owned).to_vec(), (7, 5))
    );
    let event = gateway.on_request(answer("gateway-3", None), "");
    assert_eq!(event, Event::Acknowledged { revision: 7 });
}

#[test]
fn a_large_snapshot_comes_in_messages_of_which_the_last_alone_counts() {
    let mut control = Control::default();
    let large = "x".repeat(MESSAGE / 2 + 1);
    let names: Vec<String> = (0..5).map(|number| format!("org/{number}")).collect();
    let parts: Vec<(&str, Option<&str>)> =
        names.iter().map(|name| (name.as_str(), Some(large.as_str()))).collect();
    let state = control.publish(1, &parts);
    let mut gateway = DeltaSubscription::default();
    gateway.on_request(first(), "");
    let push = gateway.next_push(&state).unwrap();
    let messages: Vec<_> = push.messages().collect();
    assert_eq!(messages.iter().map(|message| message.resources.len()).collect::<Vec<_>>(), [2, 2, 1]);
    let versions: Vec<bool> =
        messages.iter().map(|message| !message.system_version_info.is_empty()).collect();
    assert_eq!(versions, [false, false, true]);
}

/// Invariant I-4: what others send.
#[test]
fn what_a_gateway_says_it_has_is_bounded() {
    let has = (0..=MAX_PARTS).map(|number| (number.to_string(), String::new())).collect();
    let mut gateway = DeltaSubscription::default();
    let request = DeltaDiscoveryRequest { initial_resource_versions: has, ..first() };
    assert_eq!(gateway.on_request(request, ""), Event::TooMany);
}
