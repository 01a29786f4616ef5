//! One call of a plugin, as a gateway makes it, and how it ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, anyhow, bail};
use asp_proto::plugin::{
    ClientMessage, InitRequest, InvokeRequest, Json, ServerMessage, client_message, server_message,
};
use asp_proto::supervisor::{
    AllocateWorkerRequest, Context as Caller, PppClientFrame, PppServerFrame, TunnelEvent, admission,
    ppp_server_frame, tunnel_event,
};
use prost::Message;
use prost_types::value::Kind;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::bed::{Client, reference};

/// A call sends its init and its invoke.
const OUTGOING: usize = 4;
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
    pub worker: String,
    request_id: String,
    frames: Streaming<PppServerFrame>,
    /// Dropping it would end the tunnel.
    outgoing: mpsc::Sender<PppClientFrame>,
    tunnel: String,
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

    /// Admits the call and hands it over; `Err` inside: the runtime's reason for a refusal.
    pub(crate) async fn start(&self, client: &Client) -> Result<std::result::Result<Running, String>> {
        match self.admit(client).await? {
            Ok(admitted) => Ok(Ok(admitted.hand_over(self, client).await?)),
            Err(reason) => Ok(Err(reason)),
        }
    }

    pub(crate) async fn admit(&self, client: &Client) -> Result<std::result::Result<Admitted, String>> {
        let request = AllocateWorkerRequest {
            plugin: Some(reference(&self.plugin, &self.version)),
            ctx: Some(Caller { tenant_id: self.tenant.clone(), ..Caller::default() }),
            soft_deadline: Some(self.deadline.try_into().context("the deadline is too long")?),
            ..AllocateWorkerRequest::default()
        };
        let answer = client.clone().allocate_worker(request).await.context("ask for a worker")?.into_inner();
        let admission = answer.admission.unwrap_or_default();
        if admission.status() == admission::Status::Rejected {
            return Ok(Err(admission.reason));
        }
        let handle = answer.handle.context("the runtime gave no handle")?;
        Ok(Ok(Admitted { tunnel: handle.tunnel_id, worker: handle.worker_local_id }))
    }
}

/// A call with a place, or one in the queue.
pub(crate) struct Admitted {
    tunnel: String,
    worker: String,
}

impl Admitted {
    pub(crate) async fn hand_over(self, request: &Request, client: &Client) -> Result<Running> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let request_id = format!("call-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let (outgoing, frames) = mpsc::channel(OUTGOING);
        let invoke = InvokeRequest {
            primitive: request.plugin.clone(),
            version: request.version.clone(),
            arguments: Some(Json { value: request.arguments.to_string().into_bytes() }),
            request_id: request_id.clone(),
            deadline: Some((SystemTime::now() + request.deadline).into()),
            ..InvokeRequest::default()
        };
        let started = Instant::now();
        for payload in
            [client_message::Payload::Init(InitRequest::default()), client_message::Payload::Invoke(invoke)]
        {
            let message = ClientMessage { payload: Some(payload) };
            let frame = PppClientFrame::carrying(&self.tunnel, &message);
            outgoing.send(frame).await.map_err(|_| anyhow!("the tunnel is closed"))?;
        }
        let opened =
            client.clone().proxy_ppp(ReceiverStream::new(frames)).await.context("open the tunnel")?;
        let frames = opened.into_inner();
        Ok(Running { worker: self.worker, request_id, frames, outgoing, tunnel: self.tunnel, started })
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
            Err(_) => Ok(!self.outgoing.is_closed()),
        }
    }

    async fn next(&mut self) -> Result<Heard> {
        let frame = timeout(PATIENCE, self.frames.message())
            .await
            .with_context(|| format!("tunnel {} hangs", self.tunnel.get(..8).unwrap_or_default()))?
            .context("read the tunnel")?;
        let Some(frame) = frame else { return Ok(Heard::End(End::Refused("the tunnel ended".into()))) };
        match frame.payload {
            Some(ppp_server_frame::Payload::Ppp(any)) => {
                let message = ServerMessage::decode(any.value.as_slice()).context("read the worker")?;
                heard(message, &self.request_id)
            }
            Some(ppp_server_frame::Payload::Event(event)) => Ok(event_heard(event)),
            None => bail!("an empty frame"),
        }
    }
}

enum Heard {
    Progress,
    Other,
    End(End),
}

fn heard(message: ServerMessage, request_id: &str) -> Result<Heard> {
    Ok(match message.payload {
        Some(server_message::Payload::Progress(_)) => Heard::Progress,
        Some(server_message::Payload::Completed(done)) => {
            if done.request_id != request_id {
                bail!("{} got the result of {}", request_id, done.request_id);
            }
            let output = done.output.unwrap_or_default().value;
            Heard::End(End::Completed(serde_json::from_slice(&output).unwrap_or(Value::Null)))
        }
        Some(server_message::Payload::Failed(failed)) => Heard::End(End::Failed(failed.code)),
        _ => Heard::Other,
    })
}

fn event_heard(event: TunnelEvent) -> Heard {
    match event.r#type() {
        tunnel_event::Type::WorkerCrashed => {
            let cause = event.details.and_then(|mut details| details.fields.remove("cause"));
            let cause = match cause.and_then(|value| value.kind) {
                Some(Kind::StringValue(cause)) => cause,
                _ => "unknown".to_owned(),
            };
            Heard::End(End::Crashed(cause))
        }
        tunnel_event::Type::RuntimeOverload | tunnel_event::Type::AdmissionRejected => {
            Heard::End(End::Refused(event.message))
        }
        _ => Heard::Other,
    }
}
