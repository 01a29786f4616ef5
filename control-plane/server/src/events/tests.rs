use std::sync::Arc;

use asp_platform::clock;
use asp_store::control::sql::ControlStore;
use asp_store::control::{AuditQuery, Change};
use asp_xds::endpoints::Endpoints;

use super::feed::{EventOutcome, Feed};
use super::{MessageOrigin, RevocationEvents};
use crate::admission::Admission;
use crate::catalog::usage::Usage;
use crate::catalog::{Compiler, StaticConfig};
use crate::publisher::Publisher;
use crate::publisher::stored::StoreSource;
use crate::testkit::TestIssuer;

/// Events of a topic that may revoke in some orgs.
struct Topic {
    events: RevocationEvents,
    store: Arc<ControlStore>,
    feed: Arc<Feed>,
}

impl Topic {
    async fn of(orgs: &[&str]) -> Topic {
        let store = Arc::new(ControlStore::in_memory().await.unwrap());
        let compiler = Compiler::new(StaticConfig {
            public_url: "http://127.0.0.1:8080".into(),
            dev: true,
            workers: 1,
            trust: TestIssuer::new().trust(),
            upstreams: Vec::new(),
            default_agent: String::new(),
            agent_hosts: Vec::new(),
            all_servers: false,
            unauthenticated_rate: 0,
        });
        let usage: Arc<Usage> = Arc::default();
        let source = StoreSource::new(Arc::clone(&store), compiler.clone(), Arc::clone(&usage));
        let (_, publisher) = Publisher::new(Arc::new(source), "/f.wasm".into(), Endpoints::new().subscribe());
        let feed = Arc::new(Feed::new("asp.revocations"));
        let admission = Admission::new(Arc::clone(&store), compiler, usage);
        let orgs = orgs.iter().map(|org| (*org).to_owned()).collect();
        let events = RevocationEvents::new(Arc::clone(&store), admission, publisher, Arc::clone(&feed), orgs);
        Topic { events, store, feed }
    }

    async fn take(&self, offset: i64, text: &str) -> EventOutcome {
        let origin = MessageOrigin { topic: "asp.revocations", partition: 0, offset, at: None };
        self.events.take(origin, text.as_bytes()).await.unwrap()
    }

    async fn revoked(&self) -> Vec<String> {
        let live = self.store.revocations(None, 100).await.unwrap();
        live.into_iter().map(|record| format!("{} {} {}", record.kind, record.org, record.target)).collect()
    }
}

/// Invariant I-13: what a message revokes is stored when it is answered for, and once however often it comes.
#[tokio::test]
async fn an_event_becomes_one_audited_revocation_however_often_it_comes() {
    let topic = Topic::of(&["acme"]).await;
    let bob = r#"{"event":"e-1","type":"user","org":"acme","id":"bob","reason":"left"}"#;
    assert_eq!(topic.take(1, bob).await, EventOutcome::Revoked);
    for offset in [1, 2] {
        assert_eq!(topic.take(offset, bob).await, EventOutcome::Repeated);
    }
    assert_eq!(topic.revoked().await, ["user acme bob"]);
    let ends = topic.store.link_endings(10).await.unwrap();
    assert_eq!((ends.len(), ends[0].org.as_str(), ends[0].subject.as_str()), (1, "acme", "bob"));
    let audit = topic.store.audit(&AuditQuery { limit: 10, ..AuditQuery::default() }).await.unwrap();
    assert_eq!(audit.len(), 1);
    assert_eq!((audit[0].actor.as_str(), audit[0].org.as_str()), ("kafka:asp.revocations", "acme"));

    let lifted = topic.store.revocations(None, 1).await.unwrap().remove(0);
    topic.store.delete_revocation(&Change::unconditional("admin", 1), &lifted.id).await.unwrap();
    assert_eq!(topic.take(3, bob).await, EventOutcome::Repeated);
    assert!(topic.revoked().await.is_empty(), "a repetition does not undo what an admin lifted");
    let view = serde_json::to_value(topic.feed.view()).unwrap();
    assert_eq!((&view["revoked"], &view["repeated"]), (&1.into(), &3.into()));
}

/// Invariant I-12: the operator says in which orgs the topic may revoke.
#[tokio::test]
async fn a_topic_revokes_only_where_the_operator_lets_it() {
    let narrow = Topic::of(&["acme", "team-*"]).await;
    for (offset, text, expected) in [
        (1, r#"{"type":"token","org":"acme","id":"a"}"#, EventOutcome::Revoked),
        (2, r#"{"type":"org","id":"team-1"}"#, EventOutcome::Revoked),
        (3, r#"{"type":"token","org":"globex","id":"b"}"#, EventOutcome::Parked),
        (4, r#"{"type":"token","id":"c"}"#, EventOutcome::Parked),
        (5, r#"{"type":"user","org":"acme2","id":"bob"}"#, EventOutcome::Parked),
    ] {
        assert_eq!(narrow.take(offset, text).await, expected, "{text}");
    }
    assert_eq!(narrow.revoked().await.len(), 2);
    let parked = narrow.store.parked_events(10).await.unwrap();
    assert_eq!(parked.len(), 3);
    assert!(parked.iter().all(|parked| parked.fault.contains("ASP_KAFKA_ORGS")), "{parked:?}");

    let nobody = Topic::of(&[]).await;
    assert_eq!(nobody.take(1, r#"{"type":"org","id":"acme"}"#).await, EventOutcome::Parked);
    let everybody = Topic::of(&["*"]).await;
    assert_eq!(everybody.take(1, r#"{"type":"token","id":"c"}"#).await, EventOutcome::Revoked);
}

#[tokio::test]
async fn what_is_no_event_is_parked_once_and_what_is_old_changes_nothing() {
    let topic = Topic::of(&["*"]).await;
    for _ in 0..2 {
        assert_eq!(topic.take(1, "not json").await, EventOutcome::Parked);
    }
    let parked = topic.store.parked_events(10).await.unwrap();
    assert_eq!(parked.len(), 1);
    assert_eq!((parked[0].id.as_str(), parked[0].payload.as_str()), ("asp.revocations:0:1", "not json"));
    let two_days_ago = clock::now_ms() / 1_000 - 2 * 86_400;
    let old = format!(r#"{{"type":"user","org":"acme","id":"bob","at":{two_days_ago}}}"#);
    assert_eq!(topic.take(2, &old).await, EventOutcome::Old);
    let revision = topic.store.revision().await.unwrap();
    assert_eq!((topic.revoked().await.len(), revision), (0, 0));
}
