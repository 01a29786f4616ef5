//! The shared edge vectors, each sent twice over the wire: through real Envoy with the built filter, and
//! straight at a real gateway. Both must do what the vector says, and refuse with the same bytes (I-1).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use asp_e2e::envoy::{self, Envoy};
use asp_e2e::http1::{self, Request, Response};
use asp_e2e::port::Reserved;
use asp_e2e::process::Process;
use asp_e2e::recorder::{self, Recorder};
use asp_e2e::wait::ErrorDetails;
use asp_e2e::xds::{GATEWAY_TYPE, XdsServer};
use asp_e2e::{insertion, tool, wait};
use asp_edge::EdgeRole;
use asp_edge::testkit::{Case, Expect, Keys, ReadRefusal, Setting, load_cases, load_snapshot};
use asp_proto::snapshot::{EdgeServer, GatewaySnapshot, Server};
use libtest_mimic::Trial;
use prost::Message;
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::process::Command;

use crate::message::TRACEPARENT;
use crate::trial::Shared;

/// A second wasm filter that does nothing: the least that Envoy takes for one.
pub(crate) const OTHER_WASM: &str = r#"(module
    (memory (export "memory") 2)
    (global $next (mut i32) (i32.const 1024))
    (func (export "proxy_abi_version_0_2_1"))
    (func (export "proxy_on_memory_allocate") (param i32) (result i32)
        (global.set $next (i32.add (global.get $next) (local.get 0)))
        (i32.sub (global.get $next) (local.get 0)))
    (func (export "proxy_on_context_create") (param i32 i32)))"#;

/// Requests after which each of two gateways was drawn.
const MOST_DRAWS: usize = 64;
/// What Envoy's own parser refuses before the filter sees it, and how.
const ENVOY_FIRST: [(&str, u16); 1] = [("paths: a path byte above 0x7f is unknown", 400)];

pub(crate) fn trials(shared: &Shared) -> Vec<Trial> {
    let mut snapshots: Vec<String> = load_cases().into_iter().map(|case| case.snapshot).collect();
    snapshots.sort();
    snapshots.dedup();
    snapshots
        .into_iter()
        .map(|snapshot| {
            let name = format!("vectors::of_snapshot_{snapshot}_hold_in_envoy_and_at_the_gateway");
            (name, snapshot, Host::Shipped)
        })
        .chain([(
            "vectors::hold_in_a_foreign_envoy_that_took_the_snippet".into(),
            "full".into(),
            Host::Foreign,
        )])
        .map(|(name, snapshot, host)| {
            shared.trial(&name, async move |_: &Shared| replay(&snapshot, host).await)
        })
        .collect()
}

/// Whose Envoy the filter runs in.
#[derive(Clone, Copy, PartialEq)]
enum Host {
    /// envoy/bootstrap.yaml
    Shipped,
    /// tests/fixtures/foreign.yaml with envoy/insert.yaml put in
    Foreign,
}

/// Everything one snapshot's cases are replayed against.
struct Bench {
    envoy: Envoy,
    gateway: Process,
    gateway_address: SocketAddr,
    keys: Keys,
    now: u64,
    public_url: String,
    xds: XdsServer,
    recorders: [Recorder; 2],
    _directory: TempDir,
}

async fn replay(snapshot: &str, host: Host) -> Result<()> {
    let mut bench = Bench::start(snapshot, host).await?;
    if host == Host::Foreign {
        bench.own_routes_go_on().await?;
    }
    let cases: Vec<Case> = load_cases().into_iter().filter(|case| case.snapshot == snapshot).collect();
    let mut faults = Vec::new();
    for case in &cases {
        if let Err(fault) = bench.check(case).await {
            faults.push(format!("{}: {fault:#}", case.name));
        }
    }
    if snapshot == "full" {
        bench.what_a_gateway_does_not_serve_another_one_does(&cases).await?;
    }
    bench.gateway.check_alive()?;
    let reloads = bench.envoy.stats("vm_reload").await?;
    assert!(reloads.values().all(|count| *count == 0), "the filter's VM was restarted: {reloads:?}");
    assert!(faults.is_empty(), "{} of {} vectors:\n{}", faults.len(), cases.len(), faults.join("\n"));
    Ok(())
}

impl Bench {
    async fn start(name: &str, host: Host) -> Result<Bench> {
        let directory = tempfile::tempdir()?;
        let keys = Keys::generate();
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let port = Reserved::new()?;
        let public_url = format!("http://{}", port.address());
        let setting = Setting { keys: &keys, now, public_url: &public_url };
        let mut edge = load_snapshot(name, &setting);
        edge.digest = Sha256::digest(edge.encode_to_vec()).to_vec();
        let recorder = Recorder::start().await?;
        let xds = XdsServer::start().await?;
        xds.push_edge(edge.encode_to_vec())?;
        xds.push_endpoints(&[recorder.address]);
        // Of two gateways at one address Envoy takes one.
        let lists = Recorder::start().await?;
        xds.push_pools(&[("pool-heavy", recorder.address), ("pool-lists", lists.address)]);
        // The gateway knows the servers, so that what it lets through reaches a protocol.
        let server = |server: &EdgeServer| Server { name: server.name.clone(), ..Default::default() };
        let servers = edge.servers.iter().map(server).collect();
        let whole = GatewaySnapshot {
            revision: edge.revision,
            servers,
            regions: edge.regions.clone(),
            edge: Some(edge),
            ..Default::default()
        };
        let version = xds.push_gateway(whole);
        let (gateway, gateway_address) = start_gateway(&directory, &xds, &public_url).await?;
        wait::until("the gateway takes its snapshot", wait::START, || async {
            xds.answer(GATEWAY_TYPE, &version)
        })
        .await?
        .map_or(Ok(()), |reason| bail!("the gateway refused its snapshot: {reason}"))?;
        let envoy = start_envoy(&directory, port, &xds, recorder.address, host).await?;
        let edge_address = envoy.address;
        wait::until("the edge passes requests on", wait::START, || async move {
            http1::get(edge_address, "/healthz", &[]).await.ok().filter(|answer| answer.status == 200)
        })
        .await
        .with_details(|| envoy.process.tail())?;
        Ok(Bench {
            envoy,
            gateway,
            gateway_address,
            keys,
            now,
            public_url,
            xds,
            recorders: [recorder, lists],
            _directory: directory,
        })
    }

    /// The owner's routes and filters work as before beside the platform's filter.
    async fn own_routes_go_on(&self) -> Result<()> {
        let open = http1::get(self.envoy.address, "/own/page", &[]).await?;
        assert!(is_recorded(&open), "{}", shown(&open));
        let private = http1::get(self.envoy.address, "/own/private", &[]).await?;
        assert_eq!(private.status, 401, "the owner's jwt_authn still guards: {}", private.text());
        assert_eq!(private.reason(), None, "and answers in its own words");
        let neighbour = [("host", "neighbour.example")];
        let left_alone = http1::get(self.envoy.address, "/demo/mcp", &neighbour).await?;
        assert_eq!(
            (left_alone.status, left_alone.text().as_str()),
            (200, "neighbour"),
            "another virtual host"
        );
        Ok(())
    }

    /// A gateway that does not reach the store says so to Envoy, which asks another one and tells no client.
    async fn what_a_gateway_does_not_serve_another_one_does(&self, cases: &[Case]) -> Result<()> {
        let both = &self.recorders;
        let at = both.each_ref().map(|recorder| recorder.address);
        self.xds.push_placed(&at.map(|address| ("pool-heavy", address)));
        let are_there = || async {
            let of = async |stat: &str| self.envoy.stat(&format!("cluster.{stat}")).await.ok();
            let gateways = of("gateway.membership_healthy").await?;
            // Each thread had a pool of each, and has one of both now.
            let pools = of("gateway-pools.lb_subsets_active").await?;
            let gone = of("gateway-pools.lb_subsets_removed").await?;
            (gateways == 2 && pools > 0 && pools == gone).then_some(())
        };
        wait::until("Envoy asks both", wait::CONVERGE, are_there).await?;
        for route in [None, Some("pool-heavy")] {
            let goes_there = |case: &&Case| {
                let expect = case.expected(EdgeRole::Filter);
                let named = |header: &str| expect.set.get(header).and_then(|value| value.as_str());
                expect.forward
                    && named("x-asp-route") == route
                    && named("x-asp-region").is_none()
                    && case.request.method != "HEAD"
            };
            let case = cases.iter().find(goes_there).with_context(|| format!("a case of {route:?}"))?;
            let request = self.request(case);
            let send = || http1::send(self.envoy.address, &request);
            let shows = |answer: &Response| answer.header("x-asp-unserved").is_some();
            // Of two one is asked first, whichever it is; where they are drawn, it is the other one half of the time.
            let mut asked = 0;
            for _ in 0..MOST_DRAWS {
                for one in both {
                    one.unserving.store(true, Ordering::Release);
                    let served = send().await?;
                    assert!(is_recorded(&served) && !shows(&served), "{route:?}: {}", shown(&served));
                    one.unserving.store(false, Ordering::Release);
                    asked += one.unserved.swap(0, Ordering::AcqRel);
                }
                if asked > 0 {
                    break;
                }
            }
            assert!(asked > 0, "{route:?}: nobody was asked again");
            for one in both {
                one.unserving.store(true, Ordering::Release);
            }
            let refused = send().await?;
            assert!(refused.status == 503 && !shows(&refused), "{route:?}: {:?}", refused.headers);
            for one in both {
                one.unserving.store(false, Ordering::Release);
                one.unserved.store(0, Ordering::Release);
            }
        }
        Ok(())
    }

    async fn check(&self, case: &Case) -> Result<()> {
        if let Some((_, status)) = ENVOY_FIRST.iter().find(|(name, _)| *name == case.name) {
            let at_edge = http1::send(self.envoy.address, &self.request(case)).await?;
            assert_eq!((at_edge.status, at_edge.reason().as_deref()), (*status, Some("invalid_request")));
            let at_gateway = http1::send(self.gateway_address, &self.request(case)).await?;
            return self
                .compare(case.expected(EdgeRole::Gateway), &at_gateway, |_| false)
                .context("at the gateway");
        }
        let request = self.request(case);
        let at_edge = http1::send(self.envoy.address, &request).await.context("through Envoy")?;
        self.compare(case.expected(EdgeRole::Filter), &at_edge, is_recorded).context("through Envoy")?;
        let at_gateway = http1::send(self.gateway_address, &request).await.context("at the gateway")?;
        let passed = |answer: &Response| !refused_by_the_edge(case, answer);
        self.compare(case.expected(EdgeRole::Gateway), &at_gateway, passed).context("at the gateway")?;
        if !case.expected(EdgeRole::Filter).forward && !case.expected(EdgeRole::Gateway).forward {
            let same = at_edge.status == at_gateway.status && at_edge.body == at_gateway.body;
            if !same && request.method != "HEAD" {
                bail!("Envoy says {}, the gateway {}", shown(&at_edge), shown(&at_gateway));
            }
        }
        Ok(())
    }

    fn request(&self, case: &Case) -> Request {
        let setting = Setting { keys: &self.keys, now: self.now, public_url: &self.public_url };
        let mut headers = case.request.headers(case.token.as_ref(), &setting);
        // Without one, each would make its own.
        headers.push(("traceparent".into(), TRACEPARENT.into()));
        Request {
            method: case.request.method.clone(),
            target: case.request.path.clone(),
            headers,
            body: case.request.body(),
        }
    }

    fn compare(&self, expect: &Expect, answer: &Response, passed: impl Fn(&Response) -> bool) -> Result<()> {
        if expect.forward {
            if !passed(answer) {
                bail!("refused with {}", shown(answer));
            }
            return if is_recorded(answer) { compare_recorded(expect, answer) } else { Ok(()) };
        }
        if answer.status != expect.status {
            bail!("{} instead of {}", shown(answer), expect.status);
        }
        let refusal = refusal(answer);
        if refusal != expect.refusal() {
            bail!("{refusal:?} in {} instead of {:?}", shown(answer), expect.refusal());
        }
        for (name, value) in &expect.headers {
            let value = value.as_str().unwrap_or_default().replace("${public_url}", &self.public_url);
            if answer.header(name) != Some(&value) {
                bail!("{name} is {:?} instead of {value:?}", answer.header(name));
            }
        }
        Ok(())
    }
}

async fn start_gateway(
    directory: &TempDir,
    xds: &XdsServer,
    public_url: &str,
) -> Result<(Process, SocketAddr)> {
    let state = directory.path().join("gateway");
    std::fs::create_dir(&state)?;
    let mut command = Command::new(tool::asp()?);
    command
        .args(["serve", "--dev", "--roles", "gateway"])
        .env("ASP_STATE_DIR", &state)
        .env("ASP_PUBLIC_URL", public_url)
        .env("ASP_XDS_URL", format!("http://{}", xds.address))
        .env("ASP_PORT", "0")
        .env("ASP_ENVOY_ADMIN_PORT", "0")
        .env("ASP_GATEWAY_PORT", "0");
    let mut gateway = Process::start("gateway", command)?;
    let ports = asp_e2e::stack::ports(&mut gateway, &state).await?;
    Ok((gateway, SocketAddr::from(([127, 0, 0, 1], ports.gateway))))
}

/// The host's configuration with the region of the vectors' homes beside the cluster `gateway`.
async fn start_envoy(
    directory: &TempDir,
    port: Reserved,
    xds: &XdsServer,
    recorder: SocketAddr,
    host: Host,
) -> Result<Envoy> {
    let root = tool::root()?;
    let read = |path: &str| std::fs::read_to_string(root.join(path)).with_context(|| format!("read {path}"));
    let mut variables = BTreeMap::new();
    let text = match host {
        Host::Shipped => read("envoy/bootstrap.yaml")?,
        Host::Foreign => {
            let other = directory.path().join("other.wasm");
            std::fs::write(&other, wat::parse_str(OTHER_WASM)?)?;
            variables.insert("OTHER_WASM".to_string(), other.to_string_lossy().into_owned());
            variables.insert("RECORDER_PORT".to_string(), recorder.port().to_string());
            variables.insert("ASP_CONTROL_HOST".to_string(), "127.0.0.1".to_string());
            let plain = read("envoy/downstream-plain.json")?.trim().to_string();
            variables.insert("ASP_CONTROL_SOCKET".to_string(), plain.clone());
            variables.insert("ASP_GATEWAY_SOCKET".to_string(), plain);
            insertion::insert(&read("tests/fixtures/foreign.yaml")?, &read("envoy/insert.yaml")?)?
        }
    };
    let cluster = |name: &str| {
        format!(
            "  - {{ name: {name}, type: STATIC, connect_timeout: 1s, load_assignment: {{ cluster_name: {name}, endpoints: \
             [{{ lb_endpoints: [{{ endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {} }} }} }} }}] }}] }} }}\n",
            recorder.port()
        )
    };
    let regions = format!("  clusters:\n{}", cluster("region-us"));
    let template = directory.path().join("bootstrap.yaml");
    std::fs::write(&template, text.replacen("  clusters:\n", &regions, 1))?;
    let tls = None;
    let xds_port = xds.address.port();
    Envoy::start(envoy::Settings { directory: directory.path(), template, port, xds_port, tls, variables })
        .await
}

fn compare_recorded(expect: &Expect, answer: &Response) -> Result<()> {
    let body = answer.json()?;
    let received = |name: &str| body[recorder::MARK][name][0].as_str();
    for (name, value) in &expect.set {
        let value = value.as_str().unwrap_or_default();
        let found = received(name);
        if found.is_none() || (value != "*" && found != Some(value)) {
            bail!("{name} is {found:?} towards the gateway instead of {value:?}");
        }
    }
    for name in expect.remove.iter().filter(|name| !expect.set.contains_key(*name)) {
        // The filter's own affinity key stands where the client's was.
        if let Some(value) = received(name)
            && name != "x-asp-affinity"
        {
            bail!("{name}: {value} reached the gateway");
        }
    }
    Ok(())
}

fn is_recorded(answer: &Response) -> bool {
    answer.status == 200 && answer.json().is_ok_and(|body| body.get(recorder::MARK).is_some())
}

/// Whether the gateway refused by the edge's rules what they let through. Two refusals are its own: a path
/// of a protocol it does not serve, and a credential that no one at the edge can judge.
fn refused_by_the_edge(case: &Case, answer: &Response) -> bool {
    const EDGE: [&str; 6] =
        ["origin_denied", "host_denied", "token_expired", "token_revoked", "parse_error", "body_too_large"];
    const UNJUDGED: [&str; 5] = ["/opaque/", "/either/", "/shared/", "/mixed/", "/certs/"];
    let mcp = case.request.path.split('?').next().is_some_and(|path| path.ends_with("/mcp"));
    let judged = !UNJUDGED.iter().any(|server| case.request.path.starts_with(server));
    refusal(answer).reason.is_some_and(|reason| {
        EDGE.contains(&reason.as_str())
            || (reason == "unknown_server" && mcp)
            || (matches!(reason.as_str(), "token_invalid" | "token_missing") && judged)
    })
}

fn refusal(answer: &Response) -> ReadRefusal {
    ReadRefusal::read(|name| answer.header(name), &answer.body)
}

fn shown(answer: &Response) -> String {
    format!("{} {}", answer.status, answer.text().chars().take(200).collect::<String>())
}
