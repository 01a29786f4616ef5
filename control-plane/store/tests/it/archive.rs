//! Tests of the archive: all data moves from SQLite to PostgreSQL and back without loss, or none does.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use asp_e2e::stores::Postgres as Server;
use asp_store::approvals;
use asp_store::archive::{self, ArchiveDatabase, ArchiveError, Summary};
use asp_store::audit::{AuditLog, AuditQuery, CallEvent};
use asp_store::control::sql::ControlStore;
use asp_store::control::{
    self, CertificateName, Change, ControlState, IssuerKeysRecord, MachineBound, MachineCertificateRecord,
    MachineKeyRecord, OfferRecord, ParkedEvent, RevocationEvent, RevocationRecord, Side,
};
use asp_store::ledger::{self, Budget};
use asp_store::linked_accounts;
use asp_store::plugin_storage;
use asp_store::postgres::Postgres;
use asp_store::push;
use asp_store::records::{self, CallQuotas, CallRecords, OwnerId, State};
use asp_store::sqlite::{SqliteAudit, SqliteCalls};
use asp_store::usage::{UsageBatch, UsageCounts, UsageKey, UsageStore};
use bytes::Bytes;
use tempfile::TempDir;

fn files(directory: &Path) -> ArchiveDatabase {
    let [control, calls, audit] = ["asp.db", "calls.db", "audit.db"].map(|file| directory.join(file));
    ArchiveDatabase::Files { control, calls, audit }
}

/// Creates files with rows in every table.
async fn full() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let at = |file: &str| directory.path().join(file);
    let control = ControlStore::file(&at("asp.db")).await.unwrap();
    control::suite::run(&control).await;
    let change = Change::unconditional("suite", 1);
    fill_control(&control, &change).await;
    let calls = Arc::new(SqliteCalls::open(&at("calls.db")).await.unwrap());
    ledger::suite::run(Arc::clone(&calls) as Arc<_>).await;
    records::suite::run(calls.as_ref()).await;
    push::suite::run(calls.as_ref()).await;
    plugin_storage::suite::run(calls.as_ref()).await;
    approvals::suite::run(Arc::clone(&calls)).await;
    linked_accounts::suite::run(calls.as_ref()).await;
    let key = records::suite::key(200);
    let memory = Bytes::from_static(b"m");
    calls.put(&key, OwnerId([9; 16]), State::Working, Bytes::from_static(b"\0r")).await.unwrap();
    calls.save_memory(key.call, OwnerId([9; 16]), memory).await.unwrap();
    let log = SqliteAudit::open(&at("audit.db"), 1 << 30).await.unwrap();
    let event =
        |n: i64| CallEvent { at_ms: n, org: format!("org-{}", n % 3), event: format!("{{\"ü\":{n}}}") };
    log.append(&(1..=700).map(event).collect::<Vec<_>>()).await.unwrap();
    let counts = UsageCounts::of_call(Duration::from_millis(3), false, false);
    let key = UsageKey { org: "acme".into(), day: 20_000, user: "ann".into(), ..UsageKey::default() };
    let batch = UsageBatch { writer: [1; 16], number: 1, rows: [(key, counts)].into() };
    log.add_usage(&batch).await.unwrap();
    log.close().await;
    calls.close().await;
    control.close().await;
    directory
}

/// Adds what the suite of the control store leaves out.
async fn fill_control(control: &ControlStore, change: &Change) {
    let keys = IssuerKeysRecord {
        side: Side::Clients,
        name: "login".into(),
        source: "https://login.example/keys".into(),
        content: "{}".into(),
        fetched_at: 1,
    };
    control.put_issuer_keys(change, &keys).await.unwrap();
    let key = MachineKeyRecord {
        id: "k".into(),
        org: "acme".into(),
        machine: "press".into(),
        hash: "00".into(),
        groups: vec!["robots".into()],
        scopes: vec![],
        created_at: 1,
        expires_at: 2,
    };
    control.add_machine_key(change, &key).await.unwrap();
    let certificate = MachineCertificateRecord {
        id: "c".into(),
        org: "acme".into(),
        machine: "press".into(),
        name: CertificateName::Uri("spiffe://example.org/press".into()),
        proved: true,
        groups: vec![],
        scopes: vec![],
        created_at: 1,
        expires_at: 2,
    };
    control.put_machine_certificate(change, &certificate).await.unwrap();
    let bound = MachineBound { groups: ["robots".to_owned()].into(), scopes: ["print".to_owned()].into() };
    control.put_machine_bound(change, "acme", &bound).await.unwrap();
    let offer = OfferRecord { server: "demo".into(), org: "acme".into() };
    control.put_offer(change, &offer).await.unwrap();
    fill_events(control, change).await;
}

async fn fill_events(control: &ControlStore, change: &Change) {
    let revoked = RevocationRecord {
        id: "by-event".into(),
        kind: "token".into(),
        org: "acme".into(),
        target: "jti".into(),
        issuer: String::new(),
        reason: String::new(),
        created_at: 1,
        until: 2,
        by_platform: true,
    };
    let event = RevocationEvent { id: "event".into(), until: 2 };
    control.add_revocation_of(change, &revoked, Some(&event)).await.unwrap();
    let parked =
        ParkedEvent { id: "t:0:1".into(), parked_at: 1, fault: "it is not JSON".into(), payload: "{".into() };
    control.park_event(&parked).await.unwrap();
}

async fn exported(source: &ArchiveDatabase) -> (Vec<Summary>, Vec<u8>) {
    let mut out = Vec::new();
    let written = archive::export(source, &mut out).await.unwrap();
    (written, out)
}

async fn database(server: &Server) -> Postgres {
    Postgres::connect(&server.url(), 4).await.unwrap()
}

/// Invariant I-6: durable data survives the move to another database.
#[tokio::test]
async fn everything_goes_from_files_to_a_server_and_back_and_is_what_it_was() {
    let directory = full().await;
    let (written, archive_text) = exported(&files(directory.path())).await;
    let empty: Vec<_> = written.iter().filter(|table| table.rows == 0).collect();
    assert!(empty.is_empty(), "the test shows nothing of {empty:?}");
    let server = Server::start().await.unwrap();
    let postgres = database(&server).await;
    let there = ArchiveDatabase::Postgres(postgres.clone());
    let came = archive::import(&there, archive_text.as_slice()).await.unwrap();
    assert_eq!(came, written);
    let (again, second_text) = exported(&there).await;
    assert_eq!((again, &second_text), (written.clone(), &archive_text));
    let back = tempfile::tempdir().unwrap();
    assert_eq!(archive::import(&files(back.path()), second_text.as_slice()).await.unwrap(), written);
    assert_eq!(exported(&files(back.path())).await.1, archive_text);

    // The server continues where the files ended.
    let control = ControlStore::file(&directory.path().join("asp.db")).await.unwrap();
    let moved = postgres.control().await.unwrap();
    let here = control.load().await.unwrap();
    // The stamp belongs to the history of each database.
    let stamp = here.stamp.clone();
    assert_eq!(ControlState { stamp, ..moved.load().await.unwrap() }, here);
    let log = postgres.audit(1 << 30);
    let event = CallEvent { at_ms: 1, org: "org-1".into(), event: "{}".into() };
    log.append(&[event]).await.unwrap();
    let page = log.page(&AuditQuery { limit: 1, ..AuditQuery::default() }).await.unwrap();
    assert!(page[0].seq > 701, "behind what was moved: {}", page[0].seq);
    numbers_go_on_in_another_database(&server, &there, page[0].seq).await;
    let calls = postgres.calls(Budget::default(), CallQuotas::default());
    let key = records::suite::key(200);
    let record = calls.find(key.call).await.unwrap().expect("the record of a running call");
    assert_eq!(
        (record.state, &record.memory[..], &record.record[..]),
        (State::Working, &b"m"[..], &b"\0r"[..])
    );
    calls.renew(OwnerId([7; 16]), Duration::from_secs(60)).await.unwrap();
}

/// Checks that numbers continue in another database. `last`: number of the newest event in the server's database.
async fn numbers_go_on_in_another_database(server: &Server, source: &ArchiveDatabase, last: i64) {
    let (_, text) = exported(source).await;
    server.ask("CREATE DATABASE other OWNER asp").await.unwrap();
    let url = server.url();
    let url = format!("{}other", url.strip_suffix("postgres").unwrap());
    let other = Postgres::connect(&url, 2).await.unwrap();
    archive::import(&ArchiveDatabase::Postgres(other.clone()), text.as_slice()).await.unwrap();
    let log = other.audit(1 << 30);
    let event = CallEvent { at_ms: 1, org: "org-1".into(), event: "{}".into() };
    log.append(&[event]).await.unwrap();
    let page = log.page(&AuditQuery { limit: 3, ..AuditQuery::default() }).await.unwrap();
    let [newest, before, moved] = [0, 1, 2].map(|place: usize| page[place].seq);
    assert!(newest > last && before == last && moved == 700, "{newest} {before} {moved}");
}

#[tokio::test]
async fn a_database_that_holds_something_takes_no_archive() {
    let directory = full().await;
    let (_, text) = exported(&files(directory.path())).await;
    let refused = archive::import(&files(directory.path()), text.as_slice()).await.unwrap_err();
    assert!(matches!(refused, ArchiveError::NotEmpty(_)), "{refused}");
    let server = Server::start().await.unwrap();
    let postgres = database(&server).await;
    control::suite::run(&postgres.control().await.unwrap()).await;
    let refused = archive::import(&ArchiveDatabase::Postgres(postgres), text.as_slice()).await.unwrap_err();
    assert!(matches!(refused, ArchiveError::NotEmpty("control_revision")), "{refused}");
}

#[tokio::test]
async fn of_an_archive_that_is_cut_or_changed_nothing_comes() {
    let directory = full().await;
    let (_, whole) = exported(&files(directory.path())).await;
    let text = String::from_utf8(whole).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let with = |place: usize, line: &str| {
        let mut lines = lines.clone();
        lines[place] = line;
        lines.join("\n") + "\n"
    };
    let row = lines.iter().position(|line| line.starts_with('[')).unwrap();
    let table = lines.iter().position(|line| line.contains("\"servers\"")).unwrap();
    let without_a_row = [&lines[..=row], &lines[row + 2..]].concat().join("\n") + "\n";
    let cases = [
        (String::new(), "incomplete"),
        ("{}\n".to_owned(), "not an archive"),
        (with(0, "{\"format\":\"asp-archive/2\"}"), "not an archive"),
        (with(row, "[1]"), "1 values"),
        (with(row, "[1,\"x\"]"), "revision of a row of control_revision"),
        (with(row, "[1,7]"), "the archive was changed"),
        (with(table, "{\"table\":\"servers\",\"columns\":[\"name\"]}"), "same version"),
        (with(row, "["), "not JSON"),
        (without_a_row, "the archive was changed"),
        (lines[..lines.len() - 1].join("\n") + "\n", "incomplete"),
        (text.trim_end().to_owned(), "it is truncated"),
        (with(lines.len() - 1, "{}"), "the end is expected"),
    ];
    let server = Server::start().await.unwrap();
    let postgres = database(&server).await;
    let there = ArchiveDatabase::Postgres(postgres);
    let nothing = archive::count(&there).await.unwrap();
    for (archive_text, expected) in cases {
        let refused = archive::import(&there, archive_text.as_bytes()).await.unwrap_err();
        assert!(refused.to_string().contains(expected), "{expected}: {refused}");
        assert_eq!(archive::count(&there).await.unwrap(), nothing, "{expected}");
    }
    archive::import(&there, text.as_bytes()).await.unwrap();
}
