//! The port suites on a real object store with a real PostgreSQL, and requirements specific to a shared store.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use asp_e2e::object_store::{ACCESS_KEY, ObjectStore, REGION, SECRET_KEY};
use asp_e2e::stores::Postgres as Server;
use asp_e2e::{http1, wait};
use asp_platform::secret::Secret;
use asp_store::blobs::{self, BlobError, BlobId, BlobMeta, Blobs, EACH};
use asp_store::packages::{self, PackageError, Packages, Quota};
use asp_store::postgres::Postgres;
use asp_store::s3::{Credentials, Links, S3, S3Blobs, S3Packages, Settings, check};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

struct Fresh {
    store: ObjectStore,
    server: Server,
    database: Postgres,
    directory: TempDir,
}

fn settings(store: &ObjectStore) -> Settings {
    Settings {
        place: check(&store.url()).unwrap(),
        region: REGION.into(),
        credentials: Credentials {
            access_key: ACCESS_KEY.into(),
            secret_key: Secret::new(SECRET_KEY.into()),
            session_token: None,
        },
        links: None,
    }
}

impl Fresh {
    async fn start() -> Fresh {
        let server = Server::start().await.unwrap();
        let database = Postgres::connect(&server.url(), 8).await.unwrap();
        let store = ObjectStore::start().await.unwrap();
        Fresh { store, server, database, directory: tempfile::tempdir().unwrap() }
    }

    fn s3(&self) -> S3 {
        S3::open(&settings(&self.store)).unwrap()
    }

    /// Returns the blobs of one gateway, with its own connections.
    fn blobs(&self, quota: u64) -> S3Blobs {
        S3Blobs::with_quota(&self.database, self.s3(), self.directory.path(), quota).unwrap()
    }

    fn packages(&self, quota: Quota) -> S3Packages {
        S3Packages::open(&self.database, self.s3(), self.directory.path(), quota).unwrap()
    }

    /// Restores the initial state.
    async fn empty(&self) {
        self.server.ask("TRUNCATE objects, object_usage").await.unwrap();
        for folder in ["artifacts", "packages"] {
            for object in self.store.objects(folder).unwrap() {
                std::fs::remove_file(object).unwrap();
            }
        }
    }

    async fn rows(&self, table: &str) -> u64 {
        self.server.ask(&format!("SELECT COUNT(*) FROM {table}")).await.unwrap().parse().unwrap()
    }
}

fn meta(expires_ms: i64) -> BlobMeta {
    BlobMeta {
        org: "acme".into(),
        owner: b"alice".to_vec(),
        server: "demo".into(),
        name: "report.csv".into(),
        content_type: "text/csv".into(),
        expires_ms,
    }
}

async fn keep(blobs: &dyn Blobs, n: u128, bytes: &[u8]) -> Result<(), BlobError> {
    let mut upload = blobs.create(BlobId::random(n), "acme").await?;
    upload.write(bytes).await?;
    upload.finish(meta(i64::MAX)).await
}

/// Returns content much longer than the part kept in memory, without repetitions.
fn long() -> Vec<u8> {
    (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect()
}

#[tokio::test]
async fn the_backends_pass_the_suites() {
    let fresh = Fresh::start().await;
    blobs_do_what_every_backend_must(&fresh).await;
    empty_blobs_count_too(&fresh).await;
    packages_do_what_every_backend_must(&fresh).await;
}

/// A single test for all cases, because starting the servers takes longer than running them.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn several_processes_are_as_one() {
    let fresh = Fresh::start().await;
    what_one_process_keeps_every_process_reads(&fresh).await;
    a_quota_is_one_for_all_processes(&fresh).await;
    what_was_refused_or_given_up_takes_no_room(&fresh).await;
    a_package_that_is_pushed_while_it_is_deleted_is_there_whole_or_not_at_all(&fresh).await;
}

#[tokio::test]
async fn what_others_and_crashes_left_is_found() {
    let fresh = Fresh::start().await;
    bytes_that_are_not_what_was_written_are_refused(&fresh).await;
    a_sweep_deletes_what_crashes_left_in_batches(&fresh).await;
    what_cannot_be_deleted_is_named_and_is_in_nobodys_way(&fresh).await;
}

#[tokio::test]
async fn what_is_signed_says_no_more_than_it_must() {
    let fresh = Fresh::start().await;
    a_signed_url_is_good_for_one_object_and_a_while(&fresh).await;
    a_store_that_refuses_says_why_and_no_secret_is_told(&fresh).await;
}

async fn blobs_do_what_every_backend_must(fresh: &Fresh) {
    fresh.empty().await;
    blobs::suite::run(&fresh.blobs(1 << 30)).await;
}

async fn empty_blobs_count_too(fresh: &Fresh) {
    fresh.empty().await;
    blobs::suite::counts_empty_blobs(&fresh.blobs(blobs::suite::SMALL)).await;
}

async fn packages_do_what_every_backend_must(fresh: &Fresh) {
    fresh.empty().await;
    packages::suite::run(&fresh.packages(Quota::default())).await;
}

/// I-3: any replica. Each gateway has connections of its own and reads what any of them stored.
async fn what_one_process_keeps_every_process_reads(fresh: &Fresh) {
    fresh.empty().await;
    let (here, there) = (fresh.blobs(1 << 30), fresh.blobs(1 << 30));
    let long = long();
    keep(&here, 1, &long).await.unwrap();
    let (found, bytes) = there.read("acme", &BlobId::random(1)).await.unwrap().unwrap();
    assert!(found == meta(i64::MAX) && bytes == long);

    let (here, there) = (fresh.packages(Quota::default()), fresh.packages(Quota::default()));
    let digest = packages::suite::put(&here, "acme", &long).await.unwrap().0;
    let found = there.find(Some("acme"), &digest).await.unwrap().unwrap();
    let mut bytes = Vec::new();
    there.open(&found).await.unwrap().unwrap().read_to_end(&mut bytes).await.unwrap();
    assert!(bytes == long);
    assert!(there.delete("acme", &digest).await.unwrap());
    assert!(here.find(None, &digest).await.unwrap().is_none());
    // Only the blob is left, in the store and on this machine.
    assert_eq!(fresh.store.objects("packages").unwrap().len(), 0);
    assert_eq!(fresh.store.objects("artifacts").unwrap().len(), 1);
    assert_eq!(std::fs::read_dir(fresh.directory.path()).unwrap().count(), 0);
}

/// I-4: an org has one quota, for all gateways that write concurrently.
async fn a_quota_is_one_for_all_processes(fresh: &Fresh) {
    const FIT: u64 = 7;
    fresh.empty().await;
    let each = EACH + 100_000;
    let quota = FIT * each + EACH;
    let gateways = [fresh.blobs(quota), fresh.blobs(quota), fresh.blobs(quota)].map(Arc::new);
    let writes = (0..20).map(|n| {
        let gateway = gateways[n as usize % gateways.len()].clone();
        tokio::spawn(async move { keep(&*gateway, n, &[7; 100_000]).await })
    });
    let kept = futures::future::join_all(writes).await;
    let kept = kept.into_iter().map(Result::unwrap).filter(|kept| match kept {
        Ok(()) => true,
        Err(BlobError::Quota) => false,
        Err(error) => panic!("{error}"),
    });
    let kept = kept.count() as u64;
    // Some of the rejected uploads briefly held capacity that another one needed.
    assert!((1..=FIT).contains(&kept), "{kept}");
    settled(fresh, kept).await;
    for n in 100..100 + u128::from(FIT - kept) {
        keep(&*gateways[0], n, &[7; 100_000]).await.unwrap();
    }
    assert!(matches!(keep(&*gateways[1], 200, &[7; 100_000]).await, Err(BlobError::Quota)));
}

/// Waits until rows, usage and objects match the number of blobs: dropped uploads are removed a moment later.
async fn settled(fresh: &Fresh, blobs: u64) {
    let settled = || async {
        let counted = "SELECT COALESCE(SUM(objects), 0) FROM object_usage";
        let counted: u64 = fresh.server.ask(counted).await.ok()?.parse().ok()?;
        let there = fresh.store.objects("artifacts").ok()?.len() as u64;
        (fresh.rows("objects").await == blobs && counted == blobs && there == blobs).then_some(())
    };
    wait::until("nothing is left of what was given up", wait::CONVERGE, settled).await.unwrap();
}

async fn what_was_refused_or_given_up_takes_no_room(fresh: &Fresh) {
    fresh.empty().await;
    let packages = fresh.packages(Quota { bytes: 6, count: 3 });
    for _ in 0..4 {
        let mut upload = packages.create("acme").await.unwrap();
        upload.write(b"123456").await.unwrap();
        let wrong = packages::Digest::parse(&"0".repeat(64)).unwrap();
        assert!(matches!(upload.finish(&wrong, "a", 1).await, Err(PackageError::Mismatch { .. })));
    }
    let digest = packages::suite::put(&packages, "acme", b"123456").await.unwrap().0;
    assert!(matches!(
        packages::suite::put(&packages, "acme", b"7").await,
        Err(PackageError::Quota { bytes: 6, count: 3 })
    ));
    packages::suite::put(&packages, "globex", b"theirs").await.unwrap();
    assert!(packages.delete("acme", &digest).await.unwrap());
    for bytes in [&b"1"[..], b"2", b""] {
        packages::suite::put(&packages, "acme", bytes).await.unwrap();
    }
    assert!(matches!(packages::suite::put(&packages, "acme", b"3").await, Err(PackageError::Quota { .. })));
}

/// A deletion and an upload of the same bytes by two control planes at once.
async fn a_package_that_is_pushed_while_it_is_deleted_is_there_whole_or_not_at_all(fresh: &Fresh) {
    fresh.empty().await;
    let packages = Arc::new(fresh.packages(Quota::default()));
    let digest = packages::suite::put(&*packages, "acme", b"one").await.unwrap().0;
    for _ in 0..30 {
        let [pushing, again, deleting] = [packages.clone(), packages.clone(), packages.clone()];
        let gone = digest.clone();
        let pushed = tokio::spawn(async move { packages::suite::put(&*pushing, "acme", b"one").await });
        let twice = tokio::spawn(async move { packages::suite::put(&*again, "acme", b"one").await });
        let deleted = tokio::spawn(async move { deleting.delete("acme", &gone).await });
        pushed.await.unwrap().unwrap();
        twice.await.unwrap().unwrap();
        deleted.await.unwrap().unwrap();
        if let Some(meta) = packages.find(Some("acme"), &digest).await.unwrap() {
            let mut bytes = Vec::new();
            packages
                .open(&meta)
                .await
                .unwrap()
                .expect("described, and without bytes")
                .read_to_end(&mut bytes)
                .await
                .unwrap();
            assert_eq!(bytes, b"one");
        }
    }
    packages::suite::put(&*packages, "acme", b"one").await.unwrap();
    assert_eq!(fresh.store.objects("packages").unwrap().len(), 1);
}

/// Bytes overwritten by another writer to the bucket.
async fn bytes_that_are_not_what_was_written_are_refused(fresh: &Fresh) {
    fresh.empty().await;
    let blobs = fresh.blobs(1 << 30);
    keep(&blobs, 1, b"the salary of May").await.unwrap();
    let packages = fresh.packages(Quota::default());
    let long = long();
    let digest = packages::suite::put(&packages, "", &long).await.unwrap().0;
    let meta = packages.find(None, &digest).await.unwrap().unwrap();
    let [artifact, package] =
        ["artifacts", "packages"].map(|folder| fresh.store.objects(folder).unwrap().remove(0));
    let other = |file: &std::path::Path| {
        let mut bytes = std::fs::read(file).unwrap();
        let last = bytes.last_mut().unwrap();
        *last ^= 1;
        std::fs::write(file, bytes).unwrap();
    };
    other(&artifact);
    other(&package);
    let refused = blobs.read("acme", &BlobId::random(1)).await.unwrap_err();
    assert!(matches!(&refused, BlobError::Unavailable(why) if why.contains("other bytes")), "{refused}");
    let mut read = Vec::new();
    let refused = packages.open(&meta).await.unwrap().unwrap().read_to_end(&mut read).await.unwrap_err();
    assert!(refused.to_string().contains("other bytes"), "{refused}");
    assert!(read.len() < long.len(), "nobody gets all of it");
}

/// Remains of crashes: rows of uploads whose process is gone, and bytes that are not visible.
async fn a_sweep_deletes_what_crashes_left_in_batches(fresh: &Fresh) {
    fresh.empty().await;
    let blobs = fresh.blobs(1 << 30);
    keep(&blobs, 1, b"one").await.unwrap();
    std::mem::forget(blobs.create(BlobId::random(2), "acme").await.unwrap());
    settled_rows(fresh, 2).await;
    blobs.sweep().await.unwrap();
    settled_rows(fresh, 2).await;
    // Two hours later, with more than one batch of others.
    let many = "INSERT INTO objects (object, kind, holder, state, counted, until_ms) \
         SELECT DECODE(MD5(n::TEXT), 'hex'), 1, 'acme', 0, 8192, 0 FROM GENERATE_SERIES(1, 1100) AS n";
    fresh.server.ask(many).await.unwrap();
    fresh
        .server
        .ask("UPDATE object_usage SET objects = objects + 1100, bytes = bytes + 1100 * 8192")
        .await
        .unwrap();
    fresh.server.ask("UPDATE objects SET until_ms = 0 WHERE state = 0").await.unwrap();
    blobs.sweep().await.unwrap();
    settled(fresh, 1).await;
    assert!(blobs.read("acme", &BlobId::random(1)).await.unwrap().is_some());
}

/// An object under a legal hold, or in a folder protected by the bucket's policy.
async fn what_cannot_be_deleted_is_named_and_is_in_nobodys_way(fresh: &Fresh) {
    const HELD: &str = "00112233445566778899aabbccddeeff";
    fresh.empty().await;
    let door = refusing(fresh.store.address, format!("DELETE /asp-files/artifacts/{HELD}?")).await;
    let mut by_the_door = settings(&fresh.store);
    by_the_door.place = check(&format!("http://{door}/asp-files")).unwrap();
    let s3 = S3::open(&by_the_door).unwrap();
    let blobs = S3Blobs::open(&fresh.database, s3, fresh.directory.path()).unwrap();
    keep(&blobs, 1, b"one").await.unwrap();
    // It is in the first of two batches.
    let past = format!(
        "INSERT INTO objects (object, kind, holder, state, counted, until_ms) SELECT DECODE('{HELD}', 'hex'), 1, 'acme', 2, 8192, -1 \
         UNION ALL SELECT DECODE(MD5(n::TEXT), 'hex'), 1, 'acme', 0, 8192, 0 FROM GENERATE_SERIES(1, 600) AS n"
    );
    fresh.server.ask(&past).await.unwrap();
    let counted = "UPDATE object_usage SET objects = objects + 601, bytes = bytes + 601 * 8192";
    fresh.server.ask(counted).await.unwrap();
    let said = blobs.sweep().await.unwrap_err().to_string();
    assert!(said.contains(&format!("artifacts/{HELD}: ")) && said.contains("AccessDenied"), "{said}");
    assert!(said.contains("1 objects") && !said.contains("X-Amz"), "{said}");
    settled_rows(fresh, 2).await;
    let counted = fresh.server.ask("SELECT objects FROM object_usage").await.unwrap();
    assert_eq!(counted, "2", "what is there counts");
    // The hold has ended.
    fresh.server.ask("UPDATE objects SET until_ms = 0 WHERE state = 2").await.unwrap();
    fresh.blobs(1 << 30).sweep().await.unwrap();
    settled(fresh, 1).await;
}

/// Starts a proxy to the store that rejects requests with this beginning, as S3 does, and forwards all others.
async fn refusing(store: SocketAddr, request: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let pass = async move |mut client: TcpStream| {
        let mut head = Vec::new();
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            if client.read_buf(&mut head).await? == 0 {
                return Ok(());
            }
        }
        if head.starts_with(request.as_bytes()) {
            let body = "<Error><Code>AccessDenied</Code></Error>";
            let size = body.len();
            let answer = format!(
                "HTTP/1.1 403 Forbidden\r\nconnection: close\r\ncontent-length: {size}\r\n\r\n{body}"
            );
            return client.write_all(answer.as_bytes()).await;
        }
        let mut store = TcpStream::connect(store).await?;
        // One request per connection, so that each is inspected.
        let line = head.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        store.write_all(&head[..line]).await?;
        store.write_all(b"connection: close\r\n").await?;
        store.write_all(&head[line..]).await?;
        tokio::io::copy_bidirectional(&mut client, &mut store).await.map(drop)
    };
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let pass = pass.clone();
            // Err: one of the two sides has disconnected.
            tokio::spawn(async move { drop(pass(client).await) });
        }
    });
    address
}

async fn settled_rows(fresh: &Fresh, rows: u64) {
    assert_eq!(fresh.rows("objects").await, rows);
}

#[tokio::test]
async fn while_the_store_is_away_that_is_said_and_it_heals() {
    let mut fresh = Fresh::start().await;
    let blobs = fresh.blobs(1 << 30);
    let packages = fresh.packages(Quota::default());
    keep(&blobs, 1, b"one").await.unwrap();
    let digest = packages::suite::put(&packages, "", b"one").await.unwrap().0;
    fresh.store.process.stop().await.unwrap();

    let said = tokio::time::timeout(Duration::from_secs(8), blobs.read("acme", &BlobId::random(1))).await;
    let said = said.expect("nobody waits for long").unwrap_err().to_string();
    assert!(said.contains("the object store does not answer") && !said.contains("X-Amz"), "{said}");
    // Operations without bytes continue.
    let meta = packages.find(None, &digest).await.unwrap().unwrap();
    assert!(packages.open(&meta).await.is_err());
    assert!(packages.delete("", &digest).await.unwrap());
    assert!(packages.find(None, &digest).await.unwrap().is_none());
    for n in 10..14 {
        assert!(matches!(keep(&blobs, n, b"late").await, Err(BlobError::Unavailable(_))));
    }
    let said = blobs.read("acme", &BlobId::random(1)).await.unwrap_err().to_string();
    assert!(said.contains("failed repeatedly"), "it is left alone: {said}");

    fresh.store.start_again().await.unwrap();
    let heals = || async { blobs.read("acme", &BlobId::random(1)).await.ok().flatten() };
    let (_, bytes) = wait::until("the store is used again", wait::START, heals).await.unwrap();
    assert_eq!(&bytes[..], b"one");
    // As many successful answers as the circuit breaker requires to close.
    for n in 20..23 {
        keep(&blobs, n, b"two").await.unwrap();
    }
    // Failed objects are deleted once no upload can still be writing them.
    fresh.server.ask("UPDATE objects SET until_ms = 0 WHERE state <> 1").await.unwrap();
    blobs.sweep().await.unwrap();
    packages.sweep().await.unwrap();
    settled(&fresh, 4).await;
    assert_eq!(fresh.store.objects("packages").unwrap().len(), 0);
}

async fn a_signed_url_is_good_for_one_object_and_a_while(fresh: &Fresh) {
    fresh.empty().await;
    let signing = |seconds| {
        let life = Duration::from_secs(seconds);
        Settings { links: Some(Links { origin: None, life }), ..settings(&fresh.store) }
    };
    let blobs_of = |settings: &Settings| {
        let s3 = S3::open(settings).unwrap();
        S3Blobs::open(&fresh.database, s3, fresh.directory.path()).unwrap()
    };
    let blobs = blobs_of(&signing(60));
    keep(&blobs, 1, b"one").await.unwrap();
    keep(&blobs, 2, b"two").await.unwrap();
    assert!(
        fresh.blobs(1 << 30).link("acme", &BlobId::random(1)).await.unwrap().is_none(),
        "nobody asked for URLs"
    );
    assert!(blobs.link("globex", &BlobId::random(1)).await.unwrap().is_none());
    let (found, size, link) = blobs.link("acme", &BlobId::random(1)).await.unwrap().unwrap();
    assert_eq!((found.name.as_str(), size), ("report.csv", 3));
    assert!(!format!("{link:?}").contains("X-Amz"), "a URL is a credential");
    assert!(!link.url.contains(SECRET_KEY) && !link.url.contains("acme"), "{}", link.url);

    let get = async |url: &str| {
        let path = url.strip_prefix(&format!("http://{}", fresh.store.address)).unwrap();
        http1::get(fresh.store.address, path, &[]).await.unwrap()
    };
    let answer = get(&link.url).await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "one"));
    assert_eq!(answer.header("content-disposition"), Some("attachment; filename=\"report.csv\""));
    assert_eq!(answer.header("content-type"), Some("application/octet-stream"));
    // Object, file name and time are part of the signature.
    let two = blobs.link("acme", &BlobId::random(2)).await.unwrap().unwrap().2.url;
    let path = |url: &str| url.split('?').next().unwrap().to_owned();
    let query = |url: &str| url.split_once('?').unwrap().1.to_owned();
    for forged in [
        format!("{}?{}", path(&two), query(&link.url)),
        link.url.replace("report.csv", "report.html"),
        link.url.replace("X-Amz-Expires=60", "X-Amz-Expires=600"),
        path(&link.url),
    ] {
        assert_eq!(get(&forged).await.status, 403, "{forged}");
    }
    // Signature Version 4 has no place for a session token except the URL.
    let mut temporary = signing(60);
    temporary.credentials.session_token = Some(Secret::new("a-session-token-of-tests".into()));
    let of_a_session = blobs_of(&temporary).link("acme", &BlobId::random(1)).await.unwrap().unwrap().2;
    assert!(
        of_a_session.url.contains("X-Amz-Security-Token=a-session-token-of-tests"),
        "{}",
        of_a_session.url
    );
    assert!(!format!("{of_a_session:?} {temporary:?}").contains("a-session-token"), "no log has it");
    let short = blobs_of(&signing(1)).link("acme", &BlobId::random(1)).await.unwrap().unwrap().2.url;
    let expires = || async { (get(&short).await.status == 403).then_some(()) };
    wait::until("a URL is good for its time", wait::CONVERGE, expires).await.unwrap();
}

/// An access key that was revoked, or a bucket that does not exist: reported in the store's own words.
async fn a_store_that_refuses_says_why_and_no_secret_is_told(fresh: &Fresh) {
    fresh.empty().await;
    let mut wrong = settings(&fresh.store);
    wrong.credentials.secret_key = Secret::new("another-secret-key".into());
    let mut temporary = wrong.clone();
    temporary.credentials.session_token = Some(Secret::new("a-session-token-of-tests".into()));
    let mut elsewhere = settings(&fresh.store);
    elsewhere.place = check(&fresh.store.url().replace("asp-files", "no-such-bucket")).unwrap();
    for (settings, code) in
        [(wrong, "SignatureDoesNotMatch"), (elsewhere, "NoSuchBucket"), (temporary, "InvalidToken")]
    {
        assert!(!format!("{settings:?}").contains("secret-key\""), "{settings:?}");
        let s3 = S3::open(&settings).unwrap();
        let blobs = S3Blobs::open(&fresh.database, s3, fresh.directory.path()).unwrap();
        let refused = keep(&blobs, 1, b"one").await.unwrap_err().to_string();
        assert!(refused.contains(code) && !refused.contains("X-Amz"), "{refused}");
        assert!(!refused.contains("a-session-token"), "{refused}");
    }
}
