//! Last published forms, at control planes that have just started, and revocations read by themselves.

use asp_store::control::{PublishedForm, RevocationRecord, SourceFile};

use super::*;
use crate::catalog::StaticConfig;
use crate::catalog::fault::{LAST_FORM, NOT_SERVED};
use crate::testkit::TestIssuer;

const GOOD: &str = "id: ping\nname: Ping\ntype: tool\nversion: 1.0.0\nowner: a@example.com\nsummary: Pings.\n\
                    mutation: read_only\nprimitiveSchema: {input_schema: {type: object}}\n\
                    runtime: {mode: builtin, entrypoint: echo}\n";
/// A spec that does not compile, such as one of a version before.
const BAD: &str = "id: ping\n";

fn files(spec: &str) -> Vec<SourceFile> {
    let server = "apiVersion: asp/v1\nname: demo\ndescription: A demo.\nprotocols: [mcp]\n\
                  auth: {schemes: [jwt], issuers: [dev]}\nofferedTo: [acme]\nprimitives: [{ref: demo/ping}]\n";
    let file = |path: &str, text: &str| SourceFile { path: path.into(), text: text.into() };
    vec![file("demo/server.yaml", server), file("demo/ping.yaml", spec)]
}

fn change() -> Change {
    Change::unconditional("test", 1_000)
}

/// A control plane that has just started.
fn started(store: &Arc<ControlStore>, issuer: &TestIssuer) -> StoreSource {
    let config = StaticConfig {
        public_url: "http://127.0.0.1:8080".into(),
        dev: true,
        workers: 1,
        trust: issuer.trust(),
        upstreams: Vec::new(),
        default_agent: String::new(),
        agent_hosts: Vec::new(),
        all_servers: false,
        unauthenticated_rate: 0,
    };
    StoreSource::new(Arc::clone(store), Compiler::new(config), Arc::default())
}

/// Builds and publishes, and lists what is in force of each part with a fault.
async fn published(source: &StoreSource) -> (SnapshotBuild, Vec<&'static str>) {
    let built = source.build(false).await.unwrap();
    source.published();
    let in_force = built.faults.iter().map(|fault| fault.in_force).collect();
    (built, in_force)
}

fn demo(built: &SnapshotBuild) -> Option<asp_xds::parts::EncodedPart> {
    built.gateway.get("server/demo").cloned()
}

/// Invariants I-3 and I-10.
#[tokio::test]
async fn a_control_plane_that_has_just_started_serves_the_form_that_the_others_serve() {
    let issuer = TestIssuer::new();
    let store: Arc<ControlStore> = Arc::new(ControlStore::in_memory().await.unwrap());
    store.put_server(&change(), "demo", &files(GOOD), "h1").await.unwrap();
    let running = started(&store, &issuer);
    let (good, faults) = published(&running).await;
    assert_eq!(faults, Vec::<&str>::new());
    running.forms.store_all().await.unwrap();

    store.put_server(&change(), "demo", &files(BAD), "h2").await.unwrap();
    let fresh = started(&store, &issuer);
    let (here, there) = (published(&running).await, published(&fresh).await);
    assert_eq!((here.1, there.1), (vec![LAST_FORM], vec![LAST_FORM]));
    let (here, there) = (here.0, there.0);
    assert_eq!(here.position, there.position);
    assert!(demo(&good).is_some());
    assert_eq!((demo(&here), demo(&there)), (demo(&good), demo(&good)));
    assert_eq!(here.edge.servers, there.edge.servers);
    let base: Arc<str> = "base".into();
    assert!(there.changed.contains(&base), "what was built before the store was asked is said too");
    let servers = fresh.compiler.last_compiled();
    assert_eq!(servers[0].offered_to, ["acme"], "it is offered to whom it was");
    fresh.forms.store_all().await.unwrap();

    // It is not a form of a later server with the same name.
    store.delete_server(&change(), "demo").await.unwrap();
    store.put_server(&change(), "demo", &files(BAD), "h3").await.unwrap();
    let (anew, faults) = published(&started(&store, &issuer)).await;
    assert_eq!((demo(&anew), faults), (None, vec![NOT_SERVED]));
}

#[tokio::test]
async fn a_form_that_this_version_cannot_read_is_in_force_nowhere_and_holds_nothing_up() {
    let issuer = TestIssuer::new();
    let store: Arc<ControlStore> = Arc::new(ControlStore::in_memory().await.unwrap());
    store.put_server(&change(), "demo", &files(BAD), "h1").await.unwrap();
    let form = |form: &[u8]| PublishedForm { part: "server/demo".into(), revision: 1, form: form.into() };
    store.put_published_forms(&[form(b"no form")]).await.unwrap();
    let (built, faults) = published(&started(&store, &issuer)).await;
    assert_eq!((demo(&built), faults, built.lacks_forms), (None, vec![NOT_SERVED], false));
}

/// A build that has the revocation is of no earlier revision, so nothing is built again.
#[tokio::test]
async fn revocations_are_of_the_revision_of_the_last_one_whatever_else_is_written_after_it() {
    let issuer = TestIssuer::new();
    let store: Arc<ControlStore> = Arc::new(ControlStore::in_memory().await.unwrap());
    let source = started(&store, &issuer);
    let (built, _) = published(&source).await;
    let now = clock::now_ms();
    let record = RevocationRecord {
        id: "one".into(),
        kind: "token_hash".into(),
        org: "acme".into(),
        target: "ab".repeat(32),
        issuer: String::new(),
        reason: String::new(),
        created_at: now,
        until: now + 60 * 60 * 1_000,
        by_platform: false,
    };
    let revoked = store.add_revocation(&change(), &record).await.unwrap().revision;
    store.put_server(&change(), "demo", &files(GOOD), "h1").await.unwrap();
    let update = source.overtake(&built.recent, built.position.revision).await.unwrap();
    let recent = update.recent.unwrap();
    assert_eq!((update.through, recent.revision, recent.revoked.len()), (revoked + 1, revoked, 16));
    let (next, _) = published(&source).await;
    assert_eq!(next.recent.revoked, recent.revoked);
    store.put_server(&change(), "demo", &files(BAD), "h2").await.unwrap();
    let later = source.overtake(&built.recent, built.position.revision).await.unwrap();
    assert!(later.recent.unwrap().revision <= next.recent.revision, "that build is not behind it");
}
