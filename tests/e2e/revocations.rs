//! Recent revocations at the edge, a resource of their own in a second entry of the filter chain (I-5): no token is
//! accepted before snapshot and list are there, a list takes effect without a snapshot, and outlives a VM.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use asp_e2e::envoy::{self, Envoy};
use asp_e2e::http1::{self, Request, Response};
use asp_e2e::port::Reserved;
use asp_e2e::recorder::{MARK, Recorder};
use asp_e2e::wait::ErrorDetails;
use asp_e2e::xds::{EDGE_FILTER, REVOKED_FILTER, XdsServer};
use asp_e2e::{tool, trap, wait};
use asp_edge::testkit::{Keys, Recipe, Setting, load_snapshot, mint};
use asp_proto::snapshot::RecentRevocations;
use prost::Message;
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::process::Command;

use crate::trial::{Shared, trials};

const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
/// Connections of one look, so that it meets every worker.
const LOOK: usize = 12;
const REVISION: &str = "wasmcustom.asp_edge_revocations_revision";

trials! { revocations:
    tokens_wait_for_the_list_that_comes_after_the_snapshot,
    tokens_wait_for_the_snapshot_that_comes_after_the_list,
    one_more_takes_effect_without_a_snapshot,
    a_bad_list_is_refused_and_an_older_one_left_out,
    a_list_that_comes_before_its_base_revives_no_token,
    the_list_outlives_a_vm_that_crashed,
    the_list_outlives_a_module_that_was_replaced,
    an_entry_that_was_enabled_lets_requests_pass,
}

/// Envoy with its control plane and a gateway that answers everything.
struct Bench {
    envoy: Envoy,
    xds: XdsServer,
    keys: &'static Keys,
    now: u64,
    public_url: String,
    _recorder: Recorder,
    directory: TempDir,
}

/// What differs from the shipped Envoy.
struct With {
    workers: u8,
    filter: PathBuf,
    /// Changes the template.
    template: fn(String) -> String,
}

impl With {
    fn workers(workers: u8) -> Result<With> {
        Ok(With { workers, filter: tool::filter_wasm()?, template: |text| text })
    }
}

impl Bench {
    async fn start(with: With) -> Result<Bench> {
        let directory = tempfile::tempdir()?;
        let port = Reserved::new()?;
        let public_url = format!("http://{}", port.address());
        let recorder = Recorder::start().await?;
        let xds = XdsServer::of(with.filter.clone()).await?;
        xds.push_endpoints(&[recorder.address]);
        let shipped = std::fs::read_to_string(tool::root()?.join("envoy/bootstrap.yaml"))?;
        let template = directory.path().join("template.yaml");
        std::fs::write(&template, (with.template)(shipped))?;
        let settings = envoy::Settings {
            directory: directory.path(),
            template,
            port,
            xds_port: xds.address.port(),
            tls: None,
            variables: envoy::filter_variable(&with.filter),
        };
        let envoy = Envoy::start_with(settings, with.workers).await?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        Ok(Bench { envoy, xds, keys: Keys::shared(), now, public_url, _recorder: recorder, directory })
    }

    /// A snapshot whose recent revocations come apart, and whose own go through this moment.
    fn snapshot(&self, revision: u64, through: u64, revoked: &[&str]) -> Vec<u8> {
        let setting = Setting { keys: self.keys, now: self.now, public_url: &self.public_url };
        let mut snapshot = load_snapshot("full", &setting);
        snapshot.revision = revision;
        snapshot.revoked = marks(revoked);
        snapshot.revoked_through = through;
        snapshot.revocations_apart = true;
        snapshot.digest = Sha256::digest(snapshot.encode_to_vec()).to_vec();
        snapshot.encode_to_vec()
    }

    /// Both resources, in force: tokens of the list are dead and others are accepted.
    async fn begin(&self, revoked: &[&str]) -> Result<()> {
        self.xds.push_edge(self.snapshot(1, 100, &["of-base"]))?;
        self.xds.push_revocations(list(1, 100, 200, revoked))?;
        self.all("good", None).await?;
        self.all("of-base", Some("token_revoked")).await
    }

    async fn call(&self, jti: &str) -> Result<Response> {
        let recipe =
            Recipe { claims: [("jti".to_owned(), jti.into())].into_iter().collect(), ..Recipe::default() };
        let authorization = format!("Bearer {}", mint(&recipe, self.keys, self.now, &self.public_url));
        http1::post(self.envoy.address, "/demo/mcp", &[("authorization", &authorization)], CALL).await
    }

    /// Whether the workers all do this with the token: refuse it for a reason, or pass it on.
    async fn now(&self, jti: &str, reason: Option<&str>) -> Result<bool> {
        for _ in 0..LOOK {
            let answer = self.call(jti).await?;
            let passed = answer.json().is_ok_and(|body| body.get(MARK).is_some());
            if answer.reason().as_deref() != reason || passed != reason.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The same, soon.
    async fn all(&self, jti: &str, reason: Option<&str>) -> Result<()> {
        let what = format!("the token {jti} gets {reason:?} from every worker");
        wait::until(&what, wait::CONVERGE, || async { self.now(jti, reason).await.ok()?.then_some(()) })
            .await
            .with_details(|| self.envoy.process.tail())
    }

    /// How often Envoy took (`update_success`) or refused (`update_rejected`) a resource of this entry.
    async fn counted(&self, filter: &str, counter: &str) -> Result<u64> {
        self.envoy.stat(&format!("extension_config_discovery.http_filter.{filter}.{counter}")).await
    }

    async fn counts(&self, filter: &str, counter: &str, least: u64) -> Result<()> {
        wait::until(&format!("{filter} {counter}"), wait::CONVERGE, || async {
            self.counted(filter, counter).await.ok().filter(|count| *count >= least)
        })
        .await
        .map(drop)
        .with_details(|| self.envoy.process.tail())
    }

    /// What the manifests of Kubernetes ask before they let an Envoy in.
    async fn has_snapshot(&self) -> Result<bool> {
        let probe = tool::root()?.join("k8s/images/has-snapshot");
        let mut probe = Command::new(probe);
        probe.env("ENVOY_ADMIN_PORT", self.envoy.admin_port().to_string());
        Ok(probe.kill_on_drop(true).status().await?.success())
    }

    async fn reloads(&self) -> Result<u64> {
        Ok(self.envoy.stats("vm_reload_success").await?.values().sum())
    }
}

async fn tokens_wait_for_the_list_that_comes_after_the_snapshot(_: &Shared) -> Result<()> {
    for workers in [1, 2] {
        let bench = Bench::start(With::workers(workers)?).await?;
        ensure!(!bench.has_snapshot().await?, "it is ready, and refuses everything");
        bench.xds.push_edge(bench.snapshot(1, 100, &["of-base"]))?;
        // Known to be dead; what else a token is, nobody knows yet.
        bench.all("of-base", Some("token_revoked")).await?;
        assert!(bench.now("good", Some("upstream_unavailable")).await?);
        let refused = bench.call("good").await?;
        assert_eq!((refused.status, refused.header("www-authenticate")), (503, None), "{}", refused.text());
        for (path, status) in
            [("/nobody/mcp", 404), ("/open/mcp", 200), ("/healthz", 200), ("/demo/mcp", 401)]
        {
            let answer = http1::get(bench.envoy.address, path, &[]).await?;
            assert_eq!(answer.status, status, "{path}: {}", answer.text());
        }
        ensure!(!bench.has_snapshot().await?, "it refuses tokens");
        bench.xds.push_revocations(list(1, 100, 200, &["dead"]))?;
        bench.all("good", None).await?;
        assert!(bench.now("dead", Some("token_revoked")).await?);
        assert_eq!(bench.reloads().await?, 0);
        ensure!(bench.has_snapshot().await?, "it serves");
    }
    Ok(())
}

async fn tokens_wait_for_the_snapshot_that_comes_after_the_list(_: &Shared) -> Result<()> {
    for workers in [1, 2] {
        let bench = Bench::start(With::workers(workers)?).await?;
        bench.xds.push_revocations(list(1, 100, 200, &["dead"]))?;
        bench.counts(REVOKED_FILTER, "update_success", 1).await?;
        assert!(bench.now("good", Some("upstream_unavailable")).await?);
        bench.xds.push_edge(bench.snapshot(1, 100, &[]))?;
        bench.all("good", None).await?;
        assert!(bench.now("dead", Some("token_revoked")).await?);
        assert_eq!(bench.envoy.stat(REVISION).await?, 1);
        assert_eq!(bench.reloads().await?, 0);
    }
    Ok(())
}

async fn one_more_takes_effect_without_a_snapshot(_: &Shared) -> Result<()> {
    let bench = Bench::start(With::workers(2)?).await?;
    bench.begin(&[]).await?;
    let snapshots = bench.counted(EDGE_FILTER, "update_success").await?;
    bench.xds.push_revocations(list(2, 100, 300, &["dead"]))?;
    bench.all("dead", Some("token_revoked")).await?;
    assert!(bench.now("good", None).await?);
    assert_eq!(bench.counted(EDGE_FILTER, "update_success").await?, snapshots);
    assert_eq!(bench.envoy.stat(REVISION).await?, 2);
    // A snapshot leaves the list as it is.
    bench.xds.push_edge(bench.snapshot(2, 100, &[]))?;
    bench.all("of-base", None).await?;
    assert!(bench.now("dead", Some("token_revoked")).await?);
    Ok(())
}

async fn a_bad_list_is_refused_and_an_older_one_left_out(_: &Shared) -> Result<()> {
    let bench = Bench::start(With::workers(2)?).await?;
    bench.begin(&["dead"]).await?;
    let unsorted =
        RecentRevocations { revision: 2, revoked: [[2; 16], [1; 16]].concat(), ..Default::default() };
    let lists = [Vec::new(), b"\xff\xff no list".to_vec(), unsorted.encode_to_vec()];
    for (known, bytes) in (1..).zip(lists) {
        bench.xds.push_revocations(bytes)?;
        bench.counts(REVOKED_FILTER, "update_rejected", known).await?;
        assert!(bench.now("dead", Some("token_revoked")).await? && bench.now("good", None).await?);
    }
    let refusals = bench.xds.reports().into_iter().filter(|report| report.nack.is_some());
    let names: Vec<_> = refusals.map(|report| report.names).collect();
    assert_eq!(names, vec![vec![REVOKED_FILTER.to_owned()]; 3], "the refusals are of the list alone");
    let taken = bench.counted(REVOKED_FILTER, "update_success").await?;
    bench.xds.push_revocations(list(0, 100, 200, &[]))?;
    bench.counts(REVOKED_FILTER, "update_success", taken + 1).await?;
    assert!(bench.now("dead", Some("token_revoked")).await?);
    bench.xds.push_revocations(list(3, 100, 300, &["dead", "other"]))?;
    bench.all("other", Some("token_revoked")).await?;
    assert_eq!(bench.reloads().await?, 0);
    Ok(())
}

/// The control plane moves what is old into a new base, and the list that leaves it out arrives first.
async fn a_list_that_comes_before_its_base_revives_no_token(_: &Shared) -> Result<()> {
    let bench = Bench::start(With::workers(2)?).await?;
    bench.begin(&["old"]).await?;
    bench.xds.push_revocations(list(2, 150, 300, &["new"]))?;
    bench.all("new", Some("token_revoked")).await?;
    assert!(bench.now("old", Some("token_revoked")).await? && bench.now("good", None).await?);
    bench.xds.push_edge(bench.snapshot(2, 150, &["old", "in-new-base"]))?;
    bench.all("in-new-base", Some("token_revoked")).await?;
    bench.xds.push_revocations(list(3, 150, 400, &["new", "newer"]))?;
    bench.all("newer", Some("token_revoked")).await?;
    assert!(bench.now("old", Some("token_revoked")).await? && bench.now("new", Some("token_revoked")).await?);
    assert!(bench.now("good", None).await?);
    // One between which and the list held time lies is no bridge.
    bench.xds.push_revocations(list(4, 500, 600, &[]))?;
    bench.all("good", Some("upstream_unavailable")).await?;
    bench.xds.push_edge(bench.snapshot(3, 500, &["old"]))?;
    bench.all("good", None).await?;
    Ok(())
}

/// A copy of the filter that a test can make crash.
fn trapping(directory: &TempDir) -> Result<PathBuf> {
    let path = directory.path().join("trapping.wasm");
    std::fs::write(&path, trap::on_bodiless_responses(&std::fs::read(tool::filter_wasm()?)?)?)?;
    Ok(path)
}

async fn the_list_outlives_a_vm_that_crashed(_: &Shared) -> Result<()> {
    let modules = tempfile::tempdir()?;
    // One worker: the request that comes next meets the VM that begins anew.
    let bench = Bench::start(With { filter: trapping(&modules)?, ..With::workers(1)? }).await?;
    bench.begin(&["dead"]).await?;
    bench.xds.push_revocations(list(2, 100, 300, &["dead", "later"]))?;
    bench.all("later", Some("token_revoked")).await?;
    let lists = bench.counted(REVOKED_FILTER, "update_success").await?;
    let head = Request { method: "HEAD".into(), target: "/healthz".into(), ..Request::default() };
    // The VM ends with the response, and the connection may with it.
    let _ = http1::send(bench.envoy.address, &head).await;
    bench.all("later", Some("token_revoked")).await?;
    assert_eq!(bench.reloads().await?, 1, "the VM crashed: {}", bench.envoy.process.tail());
    assert!(bench.now("dead", Some("token_revoked")).await? && bench.now("good", None).await?);
    assert_eq!(bench.counted(REVOKED_FILTER, "update_success").await?, lists, "no list was pushed again");
    bench.xds.push_revocations(list(3, 100, 400, &["dead", "later", "last"]))?;
    bench.all("last", Some("token_revoked")).await
}

/// The snapshot with the new module comes first: its VM has no list of its own.
async fn the_list_outlives_a_module_that_was_replaced(_: &Shared) -> Result<()> {
    let bench = Bench::start(With::workers(2)?).await?;
    bench.begin(&["dead"]).await?;
    let new = trapping(&bench.directory)?;
    bench.xds.push_edge_of(&new, bench.snapshot(2, 100, &["of-new-base"]))?;
    bench.all("of-new-base", Some("token_revoked")).await?;
    assert!(bench.now("dead", Some("token_revoked")).await? && bench.now("good", None).await?);
    Ok(())
}

async fn an_entry_that_was_enabled_lets_requests_pass(_: &Shared) -> Result<()> {
    let template = |text: String| {
        let entry = "- name: asp-revoked\n            disabled: true\n";
        assert!(text.contains(entry), "the shipped configuration disables the entry");
        text.replace(entry, "- name: asp-revoked\n")
    };
    let bench = Bench::start(With { template, ..With::workers(2)? }).await?;
    bench.begin(&["dead"]).await?;
    // Judged by the edge's own entry alone.
    let passed = "wasmcustom.asp_edge_verdicts_total.forward.none";
    let before = bench.envoy.stat(passed).await?;
    assert_eq!(bench.call("good").await?.status, 200);
    assert_eq!(bench.envoy.stat(passed).await?, before + 1);
    assert!(bench.now("dead", Some("token_revoked")).await? && bench.now("good", None).await?);
    assert_eq!(bench.reloads().await?, 0);
    Ok(())
}

/// A list as the control plane makes it; what is revoked are ids of tokens of the issuer "asp-dev".
fn list(revision: u64, since: u64, until: u64, revoked: &[&str]) -> Vec<u8> {
    let list =
        RecentRevocations { revision, since, until, revoked: marks(revoked), ..RecentRevocations::default() };
    list.encode_to_vec()
}

fn marks(ids: &[&str]) -> Vec<u8> {
    let mark = |id: &&str| Sha256::digest(format!("token\0asp-dev\0{id}"))[..16].to_vec();
    let mut marks: Vec<Vec<u8>> = ids.iter().map(mark).collect();
    marks.sort_unstable();
    marks.concat()
}
