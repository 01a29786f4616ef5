//! One call of a plugin, as a gateway makes it, and how it ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use asp_proto::plugin::{InitRequest, InvokeRequest, Json, client_message, server_message};
use asp_proto::supervisor::{AllocateWorkerRequest, Context as Caller, TunnelEvent, tunnel_event};
use asp_runtime_client::admission::crash;
use asp_runtime_client::tunnel::{OpenFault, Tunnel, TunnelContext, TunnelMessage, pack};
use serde_json::Value;
use tokio::time::{Instant, timeout};

use crate::bed::{Client, reference};

/// Hang guard: nothing here may take that long.
const PATIENCE: Duration = Duration::from_secs(90);

/// What is called.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub plugin: String,
    pub version: String,
    pub tenant: String,
    pub arguments: Value,
    pub deadline: Duration,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum End {
    Completed(Value),
    /// The code of a `failed`.
    Failed(String),
    /// The cause of a `WORKER_CRASHED`.
    Crashed(String),
    /// Not admitted, or let down by the runtime itself.
    Refused(String),
}

/// A call that runs.
pub(crate) struct Running {
    /// The worker's id, if the call found one free.
    pub worker: String,
    request_id: String,
    tunnel: Tunnel,
    started: Instant,
}

impl End {
    /// In one word, for a table.
    pub(crate) fn text(&self) -> String {
        match self {
            End::Completed(_) => "completed".to_owned(),
            End::Failed(code) => format!("failed {code}"),
            End::Crashed(cause) => cause.clone(),
            End::Refused(reason) => format!("refused {reason}"),
        }
    }
}

impl Request {
    pub(crate) fn new(plugin: &str, version: &str, arguments: Value) -> Request {
        Request {
            plugin: plugin.to_owned(),
            version: version.to_owned(),
            tenant: "tenant".to_owned(),
            arguments,
            deadline: Duration::from_secs(60),
        }
    }

    /// The call from start to end.
    pub(crate) async fn run(&self, client: &Client) -> Result<End> {
        match self.start(client).await? {
            Ok(mut running) => running.end().await,
            Err(reason) => Ok(End::Refused(reason)),
        }
    }

    /// Requests a worker for the call; `Err` inside: the runtime's reason for a refusal.
    pub(crate) async fn start(&self, client: &Client) -> Result<std::result::Result<Running, String>> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let request_id = format!("call-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let request = AllocateWorkerRequest {
            plugin: Some(reference(&self.plugin, &self.version)),
            ctx: Some(Caller { tenant_id: self.tenant.clone(), ..Caller::default() }),
            soft_deadline: Some(self.deadline.try_into().context("the deadline is too long")?),
            ..AllocateWorkerRequest::default()
        };
        let invoke = InvokeRequest {
            primitive: self.plugin.clone(),
            version: self.version.clone(),
            arguments: Some(Json { value: self.arguments.to_string().into_bytes() }),
            request_id: request_id.clone(),
            deadline: Some((SystemTime::now() + self.deadline).into()),
            ..InvokeRequest::default()
        };
        let init = pack(client_message::Payload::Init(InitRequest::default()));
        let work = pack(client_message::Payload::Invoke(invoke));
        let account = TunnelContext::default().account("plugin");
        let started = Instant::now();
        let tunnel = match Tunnel::open(Arc::clone(client), account, request, [init, work], None).await {
            Ok((tunnel, _)) => tunnel,
            Err(OpenFault::Rejected(rejection)) => return Ok(Err(rejection.to_string())),
            Err(fault) => return Err(fault).context("request a worker"),
        };
        let worker = tunnel.worker().unwrap_or_default().to_owned();
        Ok(Ok(Running { worker, request_id, tunnel, started }))
    }
}

impl Running {
    /// Since the call was handed over.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Waits until the plugin says that it has begun (its first progress).
    pub(crate) async fn begun(&mut self) -> Result<()> {
        loop {
            match self.next().await? {
                Heard::Progress => return Ok(()),
                Heard::End(end) => bail!("the call ended before it began: {}", end.text()),
                Heard::Other => {}
            }
        }
    }

    pub(crate) async fn end(&mut self) -> Result<End> {
        loop {
            if let Heard::End(end) = self.next().await? {
                return Ok(end);
            }
        }
    }

    /// Whether it has not ended within `bound`.
    pub(crate) async fn still_runs(&mut self, bound: Duration) -> Result<bool> {
        match timeout(bound, self.end()).await {
            Ok(end) => end.map(|_| false),
            Err(_) => Ok(true),
        }
    }

    async fn next(&mut self) -> Result<Heard> {
        let next = timeout(PATIENCE, self.tunnel.next()).await;
        match next.with_context(|| format!("{} hangs", self.request_id))?.context("read the tunnel")? {
            TunnelMessage::Message(payload) => heard(payload, &self.request_id),
            TunnelMessage::Event(event) => {
                if event.r#type() == tunnel_event::Type::TunnelReady {
                    self.tunnel.ready().await?;
                }
                Ok(event_heard(event))
            }
            TunnelMessage::End => Ok(Heard::End(End::Refused("the tunnel ended".into()))),
            other => bail!("no message of a call: {other:?}"),
        }
    }
}

enum Heard {
    Progress,
    Other,
    End(End),
}

fn heard(payload: server_message::Payload, request_id: &str) -> Result<Heard> {
    Ok(match payload {
        server_message::Payload::Progress(_) => Heard::Progress,
        server_message::Payload::Completed(done) => {
            if done.request_id != request_id {
                bail!("{} got the result of {}", request_id, done.request_id);
            }
            let output = done.output.unwrap_or_default().value;
            Heard::End(End::Completed(serde_json::from_slice(&output).unwrap_or(Value::Null)))
        }
        server_message::Payload::Failed(failed) => Heard::End(End::Failed(failed.code)),
        _ => Heard::Other,
    })
}

fn event_heard(event: TunnelEvent) -> Heard {
    match event.r#type() {
        tunnel_event::Type::WorkerCrashed => Heard::End(End::Crashed(crash(&event).cause)),
        tunnel_event::Type::RuntimeOverload | tunnel_event::Type::AdmissionRejected => {
            Heard::End(End::Refused(event.message))
        }
        _ => Heard::Other,
    }
}
