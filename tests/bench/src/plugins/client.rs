//! Calls of plugins as a gateway makes them, by its own client of the runtime.
//!
//! Keeps true: latency runs from the request for a place to the result; the place is given back off that path,
//! as the gateway does it, and before the loop's next but one call.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use asp_proto::plugin::{InitRequest, InvokeRequest, Json, client_message, server_message};
use asp_proto::supervisor::{
    AllocateWorkerRequest, Context as Caller, EnsurePluginRequest, HealthRequest, PluginRef, tunnel_event,
};
use asp_runtime_client::runtimes::{Runtime, metrics};
use asp_runtime_client::tunnel::{Tunnel, TunnelContext, TunnelMessage, pack};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

pub(super) const VERSION: &str = "1.0.0";
/// Hang guard of one call.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);
/// Length of the text of a call.
const TEXT: usize = 500;

/// A connection to the runtime.
#[derive(Clone)]
pub(super) struct Client {
    runtime: Arc<Runtime>,
    plugin: String,
}

/// A call that was answered.
pub(super) struct Answered {
    /// From the request for a place to the result.
    pub latency: Duration,
    /// To the runtime's word that a worker is there.
    pub ready: Duration,
    /// Whether it met a worker that ran already and had a place.
    pub warm: bool,
    closing: TunnelContext,
}

impl Answered {
    /// Waits until its place is given back.
    pub(super) async fn closed(&self) {
        self.closing.tasks.close();
        self.closing.tasks.wait().await;
    }
}

/// The text of a call: no two of them are equal.
pub(super) fn text(request_id: &str) -> String {
    format!("{request_id} {:x<TEXT$}", "")
}

/// The call that says `text`.
pub(super) fn invoke(plugin: &str, request_id: &str) -> client_message::Payload {
    let arguments = json!({"text": text(request_id)});
    client_message::Payload::Invoke(InvokeRequest {
        primitive: plugin.to_owned(),
        version: VERSION.to_owned(),
        arguments: Some(Json { value: arguments.to_string().into_bytes() }),
        request_id: request_id.to_owned(),
        deadline: Some((SystemTime::now() + PATIENCE).into()),
        ..InvokeRequest::default()
    })
}

/// The request a message of a worker ends, and its output; `None` for one that ends nothing.
pub(super) fn end(message: server_message::Payload) -> Result<Option<(String, Vec<u8>)>> {
    match message {
        server_message::Payload::Completed(done) => {
            Ok(Some((done.request_id, done.output.unwrap_or_default().value)))
        }
        server_message::Payload::Failed(failed) => {
            bail!("{} failed: {}: {}", failed.request_id, failed.code, failed.message)
        }
        _ => Ok(None),
    }
}

/// Refuses an output that is not what the call said.
pub(super) fn check(request_id: &str, output: &[u8]) -> Result<()> {
    let output: Value = serde_json::from_slice(output).context("read an output")?;
    let said = output.get("text").and_then(Value::as_str);
    anyhow::ensure!(said == Some(text(request_id).as_str()), "{request_id} got the answer of another call");
    Ok(())
}

impl Client {
    /// Of one plugin; the connection is made when it is first used.
    pub(super) fn new(socket: &std::path::Path, plugin: &str) -> Result<Client> {
        Ok(Client { runtime: Runtime::local(socket)?, plugin: plugin.to_owned() })
    }

    pub(super) fn plugin(&self) -> &str {
        &self.plugin
    }

    fn reference(&self) -> PluginRef {
        PluginRef { id: self.plugin.clone(), version: VERSION.to_owned(), ..PluginRef::default() }
    }

    /// Lets the runtime keep a worker; the level of its sandbox.
    pub(super) async fn prewarm(&self) -> Result<u32> {
        let request =
            EnsurePluginRequest { plugin: Some(self.reference()), prewarm: true, ..Default::default() };
        let ensured = self.runtime.any_client().ensure_plugin(request).await;
        Ok(ensured.with_context(|| format!("ensure {}", self.plugin))?.into_inner().isolation_level)
    }

    /// Whether the runtime has one worker, which takes calls, and none that comes or goes.
    async fn has_one_worker(&self) -> Result<bool> {
        let health = self.runtime.any_client().health(HealthRequest {}).await.context("ask for health")?;
        let health = metrics::json(health.into_inner().runtimes.context("health has figures")?);
        // None before anybody has asked for it.
        let number = |name| health.pointer(&format!("/plugins/{}@{VERSION}/{name}", self.plugin))?.as_u64();
        Ok((number("workers"), number("starting")) == (Some(1), Some(0)))
    }

    /// Waits until the runtime has one worker, and none that comes or goes.
    pub(super) async fn one_worker(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !self.has_one_worker().await? {
            anyhow::ensure!(Instant::now() < deadline, "{} has not one worker", self.plugin);
            sleep(POLL).await;
        }
        Ok(())
    }

    /// One call; `fresh` asks for a process of its own.
    pub(super) async fn call(&self, request_id: &str, fresh: bool) -> Result<Answered> {
        let called = timeout(PATIENCE, self.call_unguarded(request_id, fresh)).await;
        called.with_context(|| format!("{request_id} hangs"))?.with_context(|| format!("call {request_id}"))
    }

    async fn call_unguarded(&self, request_id: &str, fresh: bool) -> Result<Answered> {
        let init = pack(client_message::Payload::Init(InitRequest::default()));
        let work = pack(invoke(&self.plugin, request_id));
        let closing = TunnelContext::default();
        let account = closing.account("plugin");
        let began = Instant::now();
        let request = self.request(fresh)?;
        let runtime = Arc::clone(&self.runtime);
        let (mut tunnel, _) = Tunnel::open(runtime, account, request, [init, work], None).await?;
        // A result that came with the answer is of a worker that had a place.
        let had_place = tunnel.is_ready();
        let mut warm = !fresh;
        let mut ready = None;
        loop {
            match tunnel.next().await? {
                TunnelMessage::Event(event) => match event.r#type() {
                    tunnel_event::Type::TunnelReady => {
                        ready = Some(began.elapsed());
                        warm &= had_place;
                        tunnel.ready().await?;
                    }
                    tunnel_event::Type::AllocationStarted | tunnel_event::Type::AllocationQueued => {}
                    other => bail!("{}: {}", other.as_str_name(), event.message),
                },
                TunnelMessage::Message(message) => {
                    let Some((ended, output)) = end(message)? else { continue };
                    let latency = began.elapsed();
                    anyhow::ensure!(ended == request_id, "{request_id} got the end of {ended}");
                    check(request_id, &output)?;
                    // One that is answered at once is not told of.
                    let ready = ready.unwrap_or(latency);
                    return Ok(Answered { latency, ready, warm, closing });
                }
                other => bail!("no message of a call: {other:?}"),
            }
        }
    }

    fn request(&self, fresh: bool) -> Result<AllocateWorkerRequest> {
        Ok(AllocateWorkerRequest {
            plugin: Some(self.reference()),
            ctx: Some(Caller { tenant_id: "bench".into(), ..Caller::default() }),
            soft_deadline: Some(PATIENCE.try_into().context("a deadline")?),
            force_fresh_process: fresh,
            ..AllocateWorkerRequest::default()
        })
    }
}
