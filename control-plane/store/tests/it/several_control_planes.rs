//! Writes of several control planes on one PostgreSQL.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use asp_e2e::stores::Postgres as Server;
use asp_store::control::sql::ControlStore;
use asp_store::control::{Change, ExposureRecord, LimitRecord, Precondition, RevocationRecord, StoreError};
use asp_store::postgres::Postgres;
use sqlx::{Connection, PgConnection};
use tokio::task::{JoinHandle, JoinSet};

/// Creates a database and the stores of two control planes.
async fn two() -> (Server, [Arc<ControlStore>; 2]) {
    let server = Server::start().await.unwrap();
    let database = Postgres::connect(&server.url(), 1).await.unwrap();
    let store = async || Arc::new(database.control().await.unwrap());
    let stores = [store().await, store().await];
    (server, stores)
}

/// Each writer toggles the exposure of its own org, all of them at once, through two processes.
#[tokio::test]
async fn writes_of_several_control_planes_are_one_sequence_and_each_look_is_one_picture() {
    const WRITERS: u64 = 6;
    const WRITES: u64 = 20;
    let (_server, stores) = Box::pin(two()).await;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let store = Arc::clone(&stores[usize::from(writer % 2 == 1)]);
        writers.spawn(async move {
            let mut revisions = Vec::new();
            for write in 0..WRITES {
                let change = Change::unconditional(&format!("writer-{writer}"), write);
                let record = ExposureRecord {
                    org: format!("org-{writer}"),
                    server: "demo".into(),
                    protocol: "mcp".into(),
                    enabled: write % 2 == 0,
                };
                let written = store.put_exposure(&change, &record).await.unwrap();
                assert!(written.changed);
                revisions.push(written.revision);
            }
            revisions
        });
    }
    let (stop, mut stopped) = tokio::sync::watch::channel(false);
    let looker = Arc::clone(&stores[0]);
    let looks = tokio::spawn(async move {
        let mut pictures = Vec::new();
        while !*stopped.borrow_and_update() {
            let state = looker.load().await.unwrap();
            let on = state.exposure.iter().filter(|record| record.enabled).count() as u64;
            pictures.push((state.revision, state.exposure.len() as u64, on));
        }
        pictures
    });
    let mut revisions = Vec::new();
    while let Some(of_one) = writers.join_next().await {
        let of_one = of_one.unwrap();
        assert!(of_one.is_sorted());
        revisions.extend(of_one);
    }
    stop.send(true).unwrap();
    revisions.sort_unstable();
    assert_eq!(revisions, (1..=WRITERS * WRITES).collect::<Vec<_>>());
    let pictures = looks.await.unwrap();
    assert!(pictures.len() > 5, "{pictures:?}");
    for (revision, orgs, on) in pictures {
        // An org written n times is enabled if n is odd, so the parity of the revision equals that of the enabled orgs.
        assert!(orgs <= WRITERS && revision % 2 == on % 2, "revision {revision}: {orgs} orgs, {on} on");
    }
}

fn limit(capacity: u64) -> LimitRecord {
    let any = || "*".to_owned();
    LimitRecord {
        server: any(),
        primitive: any(),
        user: any(),
        wcit: any(),
        issuer: any(),
        machine: any(),
        capacity,
        refill: "1/s".into(),
        observe: false,
        ..LimitRecord::default()
    }
}

fn change(precondition: Precondition) -> Change {
    Change { precondition, ..Change::unconditional("ops", 1) }
}

/// A write of an org's policy blocks nobody while it writes its rows; of two that were evaluated at the same revision
/// one is stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_takes_its_number_last_and_is_written_by_one_at_a_time() {
    let (server, stores) = Box::pin(two()).await;
    let mut other = PgConnection::connect(&server.url()).await.unwrap();
    let mut locked = other.begin().await.unwrap();
    sqlx::query("SELECT revision FROM control_revision FOR UPDATE").execute(&mut *locked).await.unwrap();
    let writing = tokio::spawn({
        let store = Arc::clone(&stores[0]);
        let list: Vec<LimitRecord> = (0..1_000).map(limit).collect();
        async move { store.put_limits(&change(Precondition::None), "acme", &list).await }
    });
    let mut looking = PgConnection::connect(&server.url()).await.unwrap();
    until_it_waits("UPDATE control_revision%", &writing, &mut looking).await;
    locked.rollback().await.unwrap();
    let mut revision = writing.await.unwrap().unwrap().revision;
    assert_eq!((revision, stores[1].limits("acme").await.unwrap().value.len()), (1, 1_000));
    for round in 0..20 {
        let change = change(Precondition::At(revision));
        let lists = [[limit(2 * round + 1)], [limit(2 * round + 2)]];
        let [first, second] = &stores;
        let (one, two) = tokio::join!(
            first.put_limits(&change, "acme", &lists[0]),
            second.put_limits(&change, "acme", &lists[1])
        );
        let stored = stores[0].limits("acme").await.unwrap();
        let (written, list) = match (one, two) {
            (Ok(written), Err(StoreError::Conflict { .. })) => (written, &lists[0]),
            (Err(StoreError::Conflict { .. }), Ok(written)) => (written, &lists[1]),
            both => panic!("{both:?}"),
        };
        assert_eq!((stored.revision, &stored.value[..]), (written.revision, &list[..]));
        revision = written.revision;
    }
    assert_eq!(stores[0].revision().await.unwrap(), revision, "none that was refused has taken a number");
    let beside =
        of_what_an_earlier_version_writes_beside_it_nothing_is_lost(&mut other, &mut looking, &stores[0]);
    Box::pin(beside).await;
}

/// Waits until a write of limits waits for a lock in a statement like this.
async fn until_it_waits<T>(statement: &str, writing: &JoinHandle<T>, looking: &mut PgConnection) {
    let waiting = "SELECT COUNT(*) FROM pg_stat_activity a JOIN pg_locks l ON l.pid = a.pid \
        WHERE a.wait_event_type = 'Lock' AND a.query LIKE $1 AND l.relation = 'limits'::regclass \
        AND l.mode = 'RowExclusiveLock' AND l.granted";
    while sqlx::query_scalar::<_, i64>(waiting).bind(statement).fetch_one(&mut *looking).await.unwrap() == 0 {
        assert!(!writing.is_finished(), "it ended before it was seen to wait in {statement}");
    }
}

/// The previous version takes the revision first, and does not lock the resource.
async fn of_what_an_earlier_version_writes_beside_it_nothing_is_lost(
    other: &mut PgConnection,
    looking: &mut PgConnection,
    store: &Arc<ControlStore>,
) {
    const NUMBER: &str =
        "UPDATE control_revision SET revision = revision + 1 WHERE id = 1 RETURNING revision";
    let put = |org: &'static str, precondition: Precondition| {
        let store = Arc::clone(store);
        tokio::spawn(async move { store.put_limits(&change(precondition), org, &[limit(77)]).await })
    };
    let before = store.limits("acme").await.unwrap();
    for is_conditional in [true, false] {
        let mut earlier = other.begin().await.unwrap();
        let number: i64 = sqlx::query_scalar(NUMBER).fetch_one(&mut *earlier).await.unwrap();
        let precondition =
            if is_conditional { Precondition::At(before.revision) } else { Precondition::None };
        let writing = put("acme", precondition);
        until_it_waits("UPDATE control_revision%", &writing, looking).await;
        let stamp = sqlx::query("UPDATE resources SET revision = $1 WHERE name = 'limits/acme'");
        stamp.bind(number).execute(&mut *earlier).await.unwrap();
        earlier.commit().await.unwrap();
        match writing.await.unwrap() {
            Err(StoreError::Conflict { current }) if is_conditional => {
                assert_eq!(current, Some(u64::try_from(number).unwrap()));
            }
            Err(StoreError::Busy(_)) if !is_conditional => {}
            refused => panic!("{refused:?}"),
        }
        assert_eq!(store.limits("acme").await.unwrap().value, before.value);
    }
    let mut earlier = other.begin().await.unwrap();
    sqlx::query(NUMBER).execute(&mut *earlier).await.unwrap();
    let insert = "INSERT INTO limits (org, position, server, primitive, user_id, wcit, capacity, refill) \
        VALUES ('other', 0, '*', '*', '*', '*', 1, '1/s')";
    sqlx::query(insert).execute(&mut *earlier).await.unwrap();
    let writing = put("other", Precondition::None);
    until_it_waits("INSERT INTO limits%", &writing, looking).await;
    earlier.commit().await.unwrap();
    let refused = writing.await.unwrap();
    assert!(matches!(refused, Err(StoreError::Busy(_))), "{refused:?}");
}

/// The previous version takes the revision before the rows: if two writes wait for each other, PostgreSQL aborts one of
/// them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_whose_write_ends_in_a_deadlock_with_an_earlier_version_is_written_again() {
    let (server, [store, _]) = Box::pin(two()).await;
    let put = |list: Vec<LimitRecord>| {
        let store = Arc::clone(&store);
        async move { store.put_limits(&change(Precondition::None), "acme", &list).await }
    };
    put(vec![limit(1)]).await.unwrap();
    let connect = async || PgConnection::connect(&server.url()).await.unwrap();
    let (mut earlier, mut third, mut looking) = (connect().await, connect().await, connect().await);
    // It does not check for deadlocks itself, so the other write is aborted.
    server.ask("GRANT SET ON PARAMETER deadlock_timeout TO asp").await.unwrap();
    let number = "SET deadlock_timeout = '60s'; BEGIN; UPDATE control_revision SET revision = revision + 1";
    sqlx::raw_sql(number).execute(&mut earlier).await.unwrap();
    // Delays the write between deleting its rows and taking the revision.
    let insert = "BEGIN; INSERT INTO limits (org, position, server, primitive, user_id, wcit, capacity, refill) \
        VALUES ('acme', 1, '*', '*', '*', '*', 1, '1/s')";
    sqlx::raw_sql(insert).execute(&mut third).await.unwrap();
    let lists = [limit(2), limit(3)];
    let writing = tokio::spawn(put(lists.to_vec()));
    until_it_waits("INSERT INTO limits%", &writing, &mut looking).await;
    let deleting = tokio::spawn(async move {
        sqlx::query("DELETE FROM limits WHERE org = 'acme'").execute(&mut earlier).await.unwrap();
        sqlx::query("COMMIT").execute(&mut earlier).await.unwrap();
    });
    until_it_waits("DELETE FROM limits%", &deleting, &mut looking).await;
    sqlx::raw_sql("ROLLBACK").execute(&mut third).await.unwrap();
    deleting.await.unwrap();
    assert!(writing.await.unwrap().unwrap().changed);
    assert_eq!(store.limits("acme").await.unwrap().value, lists);
}

/// Invariant I-6: a revocation ends by the clock of the database, not by that of one control plane.
#[tokio::test]
async fn a_control_plane_whose_clock_is_ahead_deletes_no_revocation_that_is_in_force() {
    const HOUR: u64 = 3_600_000;
    let (_server, [store, _other]) = Box::pin(two()).await;
    let now = u64::try_from(UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap();
    let of = |id: &str, until: u64| RevocationRecord {
        id: id.into(),
        kind: "token".into(),
        org: "acme".into(),
        target: format!("jti-{id}"),
        issuer: String::new(),
        reason: String::new(),
        created_at: 1,
        until,
        by_platform: false,
    };
    for record in [of("ended", now - HOUR), of("lasting", now + HOUR)] {
        store.add_revocation(&change(Precondition::None), &record).await.unwrap();
    }
    let ahead = Change { at: now + 2 * HOUR, ..change(Precondition::None) };
    assert_eq!(store.prune(&ahead, u64::from(u32::MAX)).await.unwrap(), 1);
    assert!(store.revocation("lasting").await.unwrap().is_some());
}
