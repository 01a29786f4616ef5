//! The one ProxyPpp stream of the bench, which one task drives, as it does a bare worker's Session: what a call costs here
//! beyond the worker's part is the runtime's, and no hand-over between tasks of the bench.
//!
//! Keeps true: a call is asked for, begun and closed by messages on the stream, as a gateway does it; latency runs from the
//! request for a place to the result, and the place is given back off that path; every answer is compared with its call.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use asp_proto::envelope::packed;
use asp_proto::plugin::{ClientMessage, InitRequest, ServerMessage, client_message};
use asp_proto::supervisor::{
    AllocateWorkerResponse, CloseTunnelRequest, CloseTunnelResponse, PppClientFrame, PppServerFrame,
    TunnelEvent, admission, ppp_server_frame, tunnel_event,
};
use prost::Message;
use prost_types::Any;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::client::{Client, PATIENCE, check, end, invoke};

/// Frames of all calls that wait for the connection.
const OUTGOING: usize = 64;

/// The shared stream.
pub(super) struct Link {
    client: Client,
    outgoing: mpsc::Sender<PppClientFrame>,
    incoming: Streaming<PppServerFrame>,
    /// Calls so far, for their names.
    begun: u64,
    /// Calls that have no answer: by their own name, then by the tunnel's handle.
    open: HashMap<String, Call>,
    /// Tunnels whose call is answered and which the runtime has not closed.
    answered: HashSet<String>,
    /// Requests to close tunnels, which nobody waits for: they go with the next call's frames.
    closing: Vec<PppClientFrame>,
}

/// A call on its way.
struct Call {
    request_id: String,
    began: Instant,
    /// To the runtime's word that a worker is there.
    ready: Option<Duration>,
    /// A worker took its work at once.
    warm: bool,
}

/// A call that was answered.
pub(super) struct Answered {
    /// From the request for a place to the result.
    pub latency: Duration,
    /// To the runtime's word that a worker is there; to the result where that was not told.
    pub ready: Duration,
    /// Whether it met a worker that ran already and had a place.
    pub warm: bool,
}

/// What comes on the stream.
enum Heard {
    Allocated(AllocateWorkerResponse),
    Event(TunnelEvent),
    /// A message of the worker.
    Worker(Vec<u8>),
    Closed,
}

impl Link {
    /// Opens the stream.
    pub(super) async fn open(client: &Client) -> Result<Link> {
        let (outgoing, frames) = mpsc::channel(OUTGOING);
        // What says that many tunnels follow.
        let first = PppClientFrame { keepalive: true, ..PppClientFrame::default() };
        outgoing.send(first).await.context("the stream is closed")?;
        let mut supervisor = client.supervisor();
        let answered = supervisor.proxy_ppp(ReceiverStream::new(frames)).await.context("open the stream")?;
        Ok(Link {
            client: client.clone(),
            outgoing,
            incoming: answered.into_inner(),
            begun: 0,
            open: HashMap::new(),
            answered: HashSet::new(),
            closing: Vec::new(),
        })
    }

    /// `calls` of them with always `in_flight` on their way, each in a process of its own if they are to be `fresh`. All of
    /// their tunnels are closed when this returns.
    pub(super) async fn drive(
        &mut self,
        prefix: &str,
        (calls, in_flight): (u32, u32),
        fresh: bool,
    ) -> Result<Vec<Answered>> {
        let mut next = 0;
        let mut answered = Vec::with_capacity(calls as usize);
        while answered.len() < calls as usize {
            while next < calls && self.open.len() < in_flight as usize {
                self.begin(format!("{prefix}-{next}"), fresh).await?;
                next += 1;
            }
            answered.extend(self.hear().await?);
        }
        self.flush().await?;
        while !self.answered.is_empty() {
            self.hear().await?;
        }
        Ok(answered)
    }

    /// Asks for a worker. A process that has not started takes no work: it follows.
    async fn begin(&mut self, request_id: String, fresh: bool) -> Result<()> {
        let mut request = self.client.request(fresh)?;
        let work = invoke(self.client.plugin(), &request_id);
        request.work = (!fresh).then(|| packed(&ClientMessage { payload: Some(work) }));
        let name = format!("+{}", self.begun);
        self.begun += 1;
        let call = Call { request_id, began: Instant::now(), ready: None, warm: !fresh };
        self.flush().await?;
        self.send(&name, packed(&request)).await?;
        self.open.insert(name, call);
        Ok(())
    }

    /// Takes the next frame; the call that it answers.
    async fn hear(&mut self) -> Result<Option<Answered>> {
        let frame = timeout(PATIENCE, self.incoming.message()).await.context("the runtime hangs")?;
        let frame = frame.context("read the stream")?.context("the stream ended")?;
        let name = frame.tunnel_id;
        match read(frame.payload.context("an empty frame")?)? {
            Heard::Allocated(answer) => self.allocated(&name, answer)?,
            Heard::Event(event) => self.event(&name, &event).await?,
            Heard::Worker(message) => {
                let message = ServerMessage::decode(message.as_slice()).context("read the worker")?;
                let Some((ended, output)) = end(message)? else { return Ok(None) };
                return self.ended(name, (&ended, &output), frame.closed.is_some()).map(Some);
            }
            Heard::Closed => ensure!(self.answered.remove(&name), "{name} was not to be closed"),
        }
        Ok(None)
    }

    /// What follows the answer to a request comes by the handle.
    fn allocated(&mut self, name: &str, answer: AllocateWorkerResponse) -> Result<()> {
        let mut call = self.open.remove(name).with_context(|| format!("nobody asked for {name}"))?;
        call.warm = answer.took;
        self.open.insert(handle(answer)?, call);
        Ok(())
    }

    async fn event(&mut self, name: &str, event: &TunnelEvent) -> Result<()> {
        // Of a tunnel whose call is answered: that it ends.
        let Some(call) = self.open.get_mut(name) else { return Ok(()) };
        match event.r#type() {
            tunnel_event::Type::TunnelReady => call.ready = Some(call.began.elapsed()),
            tunnel_event::Type::AllocationStarted | tunnel_event::Type::AllocationQueued => return Ok(()),
            other => bail!("{}: {}: {}", call.request_id, other.as_str_name(), event.message),
        }
        if call.warm {
            return Ok(());
        }
        let work = invoke(self.client.plugin(), &call.request_id);
        for payload in [client_message::Payload::Init(InitRequest::default()), work] {
            self.send(name, packed(&ClientMessage { payload: Some(payload) })).await?;
        }
        Ok(())
    }

    fn ended(&mut self, name: String, (ended, output): (&str, &[u8]), closed: bool) -> Result<Answered> {
        let call = self.open.remove(&name).with_context(|| format!("nobody asked for {name}"))?;
        let latency = call.began.elapsed();
        ensure!(ended == call.request_id, "{} got the end of {ended}", call.request_id);
        check(ended, output)?;
        if !closed {
            let request = CloseTunnelRequest { tunnel_id: name.clone(), reason: "completed".into() };
            self.closing.push(PppClientFrame::carrying(&name, &request));
            self.answered.insert(name);
        }
        // One that is answered at once is not told of.
        Ok(Answered { latency, ready: call.ready.unwrap_or(latency), warm: call.warm })
    }

    /// Sends what waited for company.
    async fn flush(&mut self) -> Result<()> {
        for frame in std::mem::take(&mut self.closing) {
            self.outgoing.send(frame).await.map_err(|_| anyhow!("the stream is closed"))?;
        }
        Ok(())
    }

    async fn send(&self, name: &str, message: Any) -> Result<()> {
        let frame = PppClientFrame { tunnel_id: name.to_owned(), ppp: Some(message), keepalive: false };
        self.outgoing.send(frame).await.map_err(|_| anyhow!("the stream is closed"))
    }
}

fn read(payload: ppp_server_frame::Payload) -> Result<Heard> {
    let any = match payload {
        ppp_server_frame::Payload::Event(event) => return Ok(Heard::Event(event)),
        ppp_server_frame::Payload::Ppp(any) => any,
    };
    match any.type_url.rsplit('.').next() {
        Some("ServerMessage") => Ok(Heard::Worker(any.value)),
        Some("AllocateWorkerResponse") => {
            let answer = AllocateWorkerResponse::decode(any.value.as_slice()).context("read an answer")?;
            Ok(Heard::Allocated(answer))
        }
        Some("CloseTunnelResponse") => {
            let answer = CloseTunnelResponse::decode(any.value.as_slice()).context("read an answer")?;
            ensure!(answer.stats.is_some(), "a closed tunnel has figures");
            Ok(Heard::Closed)
        }
        _ => bail!("a message {}", any.type_url),
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
