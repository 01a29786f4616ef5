//! The one ProxyPpp stream that the bench's calls share, as those of a gateway do: each call has a stream of its own.
//!
//! Keeps true: a call is asked for, begun and closed by messages on the stream; a frame that belongs to no call ends
//! the measurement.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, anyhow, bail};
use asp_proto::envelope::packed;
use asp_proto::supervisor::runtime_supervisor_client::RuntimeSupervisorClient;
use asp_proto::supervisor::{
    AllocateWorkerRequest, AllocateWorkerResponse, CloseTunnelRequest, CloseTunnelResponse, PppClientFrame,
    PppServerFrame, TunnelEvent, ppp_server_frame,
};
use prost::Message;
use prost_types::Any;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

/// Frames of all calls that wait for the connection.
const OUTGOING: usize = 64;
/// Frames of one call that it has not read.
const INCOMING: usize = 512;

/// The shared stream.
#[derive(Clone)]
pub(super) struct Link {
    outgoing: mpsc::Sender<PppClientFrame>,
    streams: Arc<StreamTable>,
    /// Requests to close tunnels, which nobody waits for: they go with the next call's frames.
    closing: Arc<Mutex<Vec<PppClientFrame>>>,
    next: Arc<AtomicU64>,
}

/// Where the frames of each call go: by its own name, then by the tunnel's handle.
#[derive(Default)]
struct StreamTable(Mutex<HashMap<String, mpsc::Sender<Heard>>>);

/// One call's part of it.
pub(super) struct CallStream {
    link: Link,
    name: String,
    incoming: mpsc::Receiver<Heard>,
    /// The runtime has closed it.
    over: bool,
}

/// What a call hears.
pub(super) enum Heard {
    Allocated(AllocateWorkerResponse),
    Event(TunnelEvent),
    /// A message of the worker, and whether the tunnel is closed with it.
    Worker(Vec<u8>, bool),
    Closed,
}

impl Link {
    /// Opens the stream.
    pub(super) async fn open(mut client: RuntimeSupervisorClient<Channel>) -> Result<Link> {
        let (outgoing, frames) = mpsc::channel(OUTGOING);
        // What says that many tunnels follow.
        let first = PppClientFrame { keepalive: true, ..PppClientFrame::default() };
        outgoing.send(first).await.context("the stream is closed")?;
        let answered = client.proxy_ppp(ReceiverStream::new(frames)).await.context("open the stream")?;
        let mut incoming = answered.into_inner();
        let link = Link { outgoing, streams: Arc::default(), closing: Arc::default(), next: Arc::default() };
        let streams = link.streams.clone();
        tokio::spawn(async move {
            let ended = async {
                while let Some(frame) = incoming.message().await.context("read the stream")? {
                    streams.pass(frame)?;
                }
                anyhow::Ok(())
            };
            if let Err(error) = ended.await {
                eprintln!("bench: the shared stream: {error:#}");
            }
            // Every call hears that its stream ended.
            streams.all().clear();
        });
        Ok(link)
    }

    /// Asks for a worker.
    pub(super) async fn begin(&self, request: AllocateWorkerRequest) -> Result<CallStream> {
        let name = format!("+{}", self.next.fetch_add(1, Ordering::Relaxed));
        let (sender, incoming) = mpsc::channel(INCOMING);
        self.streams.all().insert(name.clone(), sender);
        self.flush().await?;
        let stream = CallStream { link: self.clone(), name, incoming, over: false };
        stream.send(packed(&request)).await?;
        Ok(stream)
    }
}

impl Link {
    /// Sends what waited for company.
    async fn flush(&self) -> Result<()> {
        let closing = std::mem::take(&mut *self.closing.lock().unwrap_or_else(PoisonError::into_inner));
        for frame in closing {
            self.outgoing.send(frame).await.map_err(|_| anyhow!("the stream is closed"))?;
        }
        Ok(())
    }
}

impl StreamTable {
    fn all(&self) -> MutexGuard<'_, HashMap<String, mpsc::Sender<Heard>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a frame to its call, if that still listens.
    fn pass(&self, frame: PppServerFrame) -> Result<()> {
        let name = frame.tunnel_id;
        let mut heard = read(frame.payload.context("an empty frame")?)?;
        if let Heard::Worker(_, last) = &mut heard {
            *last = frame.closed.is_some();
        }
        let mut streams = self.all();
        // What follows the answer comes by the handle.
        let handle = match &heard {
            Heard::Allocated(answer) => answer.handle.as_ref().map(|handle| handle.tunnel_id.clone()),
            _ => None,
        };
        if let Some(handle) = handle
            && let Some(stream) = streams.remove(&name)
        {
            // Err: nobody listens any more.
            let _ = stream.try_send(heard);
            streams.insert(handle, stream);
        } else if let Some(stream) = streams.get(&name) {
            match stream.try_send(heard) {
                Err(TrySendError::Full(_)) => bail!("{name} does not read"),
                Ok(()) | Err(TrySendError::Closed(_)) => {}
            }
        }
        Ok(())
    }
}

fn read(payload: ppp_server_frame::Payload) -> Result<Heard> {
    let any = match payload {
        ppp_server_frame::Payload::Event(event) => return Ok(Heard::Event(event)),
        ppp_server_frame::Payload::Ppp(any) => any,
    };
    match any.type_url.rsplit('.').next() {
        Some("ServerMessage") => Ok(Heard::Worker(any.value, false)),
        Some("AllocateWorkerResponse") => {
            let answer = AllocateWorkerResponse::decode(any.value.as_slice()).context("read an answer")?;
            Ok(Heard::Allocated(answer))
        }
        Some("CloseTunnelResponse") => {
            let answer = CloseTunnelResponse::decode(any.value.as_slice()).context("read an answer")?;
            anyhow::ensure!(answer.stats.is_some(), "a closed tunnel has figures");
            Ok(Heard::Closed)
        }
        _ => bail!("a message {}", any.type_url),
    }
}

impl CallStream {
    pub(super) async fn send(&self, message: Any) -> Result<()> {
        let frame = PppClientFrame { tunnel_id: self.name.clone(), ppp: Some(message), keepalive: false };
        self.link.outgoing.send(frame).await.map_err(|_| anyhow!("the stream is closed"))
    }

    pub(super) async fn next(&mut self) -> Result<Heard> {
        let heard = self.incoming.recv().await.context("the stream ended")?;
        self.over |= matches!(heard, Heard::Worker(_, true) | Heard::Closed);
        Ok(heard)
    }

    /// The tunnel has its handle: further frames go by that.
    pub(super) fn name(&mut self, handle: &str) {
        handle.clone_into(&mut self.name);
    }

    /// Asks for the end of a tunnel that has not ended with its result, with the next frames of the stream.
    pub(super) fn close(&self) {
        if self.over {
            return;
        }
        let request = CloseTunnelRequest { tunnel_id: self.name.clone(), reason: "completed".into() };
        let frame = PppClientFrame::carrying(&self.name, &request);
        self.link.closing.lock().unwrap_or_else(PoisonError::into_inner).push(frame);
    }

    /// Ends when the runtime has closed the tunnel.
    pub(super) async fn closed(mut self) -> Result<()> {
        self.link.flush().await?;
        while !self.over {
            self.next().await?;
        }
        Ok(())
    }
}

impl Drop for CallStream {
    fn drop(&mut self) {
        self.link.streams.all().remove(&self.name);
    }
}
