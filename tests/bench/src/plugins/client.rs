//! What a gateway does to call a plugin: a place, a tunnel, the call, the place given back, all as messages on one
//! stream.
//!
//! Keeps true: latency runs from the request for a place to the result; the place is given back off that path,
//! as the gateway does it, and before the loop's next but one call.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use asp_proto::envelope::packed;
use asp_proto::plugin::{
    ClientMessage, InitRequest, InvokeRequest, Json, ServerMessage, client_message, server_message,
};
use asp_proto::supervisor::runtime_supervisor_client::RuntimeSupervisorClient;
use asp_proto::supervisor::{
    AllocateWorkerRequest, AllocateWorkerResponse, Context as Caller, EnsurePluginRequest, HealthRequest,
    PluginRef, admission, tunnel_event,
};
use prost::Message;
use prost_types::value::Kind;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::time::{sleep, timeout};
use tonic::transport::{Channel, Endpoint};

use super::link::{CallStream, Heard, Link};

pub(super) const VERSION: &str = "1.0.0";
/// Hang guard of one call.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);
/// Length of the text of a call.
const TEXT: usize = 500;

/// A connection to the runtime.
#[derive(Clone)]
pub(super) struct Client {
    supervisor: RuntimeSupervisorClient<Channel>,
    /// Opened by the first call.
    link: Arc<OnceCell<Link>>,
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
    /// Its place is being given back.
    pub closing: CallStream,
}

/// The endpoint of a Unix socket.
pub(super) fn endpoint(socket: &std::path::Path) -> Result<Endpoint> {
    Endpoint::from_shared(format!("unix:{}", socket.display())).context("name a socket")
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
pub(super) fn end(message: ServerMessage) -> Result<Option<(String, Vec<u8>)>> {
    match message.payload {
        Some(server_message::Payload::Completed(done)) => {
            Ok(Some((done.request_id, done.output.unwrap_or_default().value)))
        }
        Some(server_message::Payload::Failed(failed)) => {
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
        let supervisor = RuntimeSupervisorClient::new(endpoint(socket)?.connect_lazy());
        Ok(Client { supervisor, link: Arc::default(), plugin: plugin.to_owned() })
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
        let ensured = self.supervisor.clone().ensure_plugin(request).await;
        Ok(ensured.with_context(|| format!("ensure {}", self.plugin))?.into_inner().isolation_level)
    }

    /// Whether the runtime has one worker, which takes calls, and none that comes or goes.
    async fn has_one_worker(&self) -> Result<bool> {
        let health = self.supervisor.clone().health(HealthRequest {}).await.context("ask for health")?;
        let name = format!("{}@{VERSION}", self.plugin);
        let mut at = health.into_inner().runtimes.context("health has figures")?.fields;
        for key in ["plugins", &name] {
            match at.remove(key).and_then(|value| value.kind) {
                Some(Kind::StructValue(inner)) => at = inner.fields,
                // Nobody has asked for it yet.
                _ => return Ok(false),
            }
        }
        let mut number = |key| match at.remove(key).and_then(|value| value.kind) {
            Some(Kind::NumberValue(number)) => number,
            _ => 0.0,
        };
        Ok((number("workers"), number("starting")) == (1.0, 0.0))
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
        let work = [client_message::Payload::Init(InitRequest::default()), invoke(&self.plugin, request_id)]
            .map(|payload| packed(&ClientMessage { payload: Some(payload) }));
        let link = self.link.get_or_try_init(|| Link::open(self.supervisor.clone())).await?;
        let began = Instant::now();
        let mut request = self.request(fresh)?;
        // A process that has not started takes nothing: its work follows.
        request.work = work.last().filter(|_| !fresh).cloned();
        let mut stream = link.begin(request).await?;
        let mut warm = !fresh;
        let mut ready = None;
        loop {
            match stream.next().await? {
                Heard::Allocated(answer) => {
                    warm = answer.took;
                    stream.name(&handle(answer)?);
                }
                Heard::Event(event) => match event.r#type() {
                    tunnel_event::Type::TunnelReady => {
                        ready = Some(began.elapsed());
                        if !warm {
                            for message in &work {
                                stream.send(message.clone()).await?;
                            }
                        }
                    }
                    tunnel_event::Type::AllocationStarted | tunnel_event::Type::AllocationQueued => {}
                    other => bail!("{}: {}", other.as_str_name(), event.message),
                },
                Heard::Worker(message, _) => {
                    let message = ServerMessage::decode(message.as_slice()).context("read the worker")?;
                    let Some((ended, output)) = end(message)? else { continue };
                    let latency = began.elapsed();
                    anyhow::ensure!(ended == request_id, "{request_id} got the end of {ended}");
                    check(request_id, &output)?;
                    // One that is answered at once is not told of.
                    let ready = ready.unwrap_or(latency);
                    stream.close();
                    return Ok(Answered { latency, ready, warm, closing: stream });
                }
                Heard::Closed => bail!("closed before it was answered"),
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

/// The handle of a place.
fn handle(answer: AllocateWorkerResponse) -> Result<String> {
    let admission = answer.admission.unwrap_or_default();
    if admission.status() == admission::Status::Rejected {
        bail!("refused: {}", admission.reason);
    }
    let handle = answer.handle.context("the runtime gave no handle")?;
    Ok(handle.tunnel_id)
}
