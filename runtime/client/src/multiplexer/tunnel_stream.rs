//! One tunnel's part of a shared stream.
//!
//! Keeps true: reading is acknowledged to the runtime in steps of half a window, so that it continues to send.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use asp_proto::supervisor::{AllocateWorkerResponse, PppClientFrame};
use prost::Name;
use prost_types::Any;
use tokio::sync::mpsc;
use tonic::Status;

use super::stream_table::{ABANDONED, MAX_MESSAGE, StreamEvent, WINDOW, cost};
use super::{Multiplexer, close_frame, send_or_keep};

pub struct TunnelStream {
    multiplexer: Multiplexer,
    /// Name of the tunnel: assigned by this stream until the tunnel has its handle.
    name: String,
    incoming: mpsc::Receiver<StreamEvent>,
    /// Window bytes that have arrived and were not taken.
    unread: Arc<AtomicUsize>,
    /// Window bytes that were taken and not acknowledged to the runtime.
    untold: usize,
}

impl TunnelStream {
    pub(super) fn new(
        multiplexer: Multiplexer,
        name: String,
        incoming: mpsc::Receiver<StreamEvent>,
        unread: Arc<AtomicUsize>,
    ) -> TunnelStream {
        TunnelStream { multiplexer, name, incoming, unread, untold: 0 }
    }

    pub fn multiplexer(&self) -> &Multiplexer {
        &self.multiplexer
    }

    /// Sets the tunnel's handle, which its frames use from now on.
    pub fn rename(&mut self, handle: &str) {
        handle.clone_into(&mut self.name);
    }

    /// Sends a message for the tunnel. `Err`: it is too large, or the stream has ended.
    pub async fn send(&self, ppp: Any) -> Result<(), Status> {
        // On the stream, a message that is too large would end all tunnels.
        if ppp.value.len() > MAX_MESSAGE {
            return Err(Status::out_of_range("the message is too large for a plugin"));
        }
        self.send_frame(Some(ppp)).await
    }

    /// Returns a sender for the tunnel. Call it once the tunnel has its handle.
    pub fn sender(&self) -> FrameSender {
        FrameSender { multiplexer: self.multiplexer.clone(), tunnel_id: self.name.clone() }
    }

    async fn send_frame(&self, ppp: Option<Any>) -> Result<(), Status> {
        let keepalive = ppp.is_none();
        let frame = PppClientFrame { tunnel_id: self.name.clone(), ppp, keepalive };
        let sent = self.multiplexer.send(frame).await;
        sent.map_err(|_| Status::unavailable("the stream takes no more frames"))
    }

    /// Waits for the next event. Cancel-safe.
    pub async fn next(&mut self) -> StreamEvent {
        // A message may be longer than several steps: the runtime sends nothing more until all of them are acknowledged.
        while self.untold >= WINDOW / 2 {
            if let Err(status) = self.send_frame(None).await {
                return StreamEvent::End(Some(status));
            }
            self.untold -= WINDOW / 2;
        }
        let Some(arrived) = self.incoming.recv().await else {
            return StreamEvent::End(self.multiplexer.streams.ended_with());
        };
        if let StreamEvent::Payload(payload) = &arrived {
            let cost = cost(payload);
            self.unread.fetch_sub(cost, Ordering::Relaxed);
            self.untold += cost;
        }
        arrived
    }
}

/// Sends messages of the runtime's API for a tunnel that has its handle, independently of its stream.
pub struct FrameSender {
    multiplexer: Multiplexer,
    tunnel_id: String,
}

impl FrameSender {
    /// Sends a message. `Err`: the stream has ended.
    pub async fn send<M: Name>(&self, message: &M) -> Result<(), Status> {
        let sent = self.multiplexer.send(PppClientFrame::carrying(&self.tunnel_id, message)).await;
        sent.map_err(|_| Status::unavailable("the stream takes no more frames"))
    }
}

impl Drop for TunnelStream {
    fn drop(&mut self) {
        // An answer for this stream is unwanted from now on, including one that has already arrived.
        self.incoming.close();
        while let Ok(arrived) = self.incoming.try_recv() {
            if let StreamEvent::Allocated(AllocateWorkerResponse { handle: Some(handle), .. }) = arrived {
                self.name = handle.tunnel_id;
                self.multiplexer.streams.abandon(&self.name);
                let frame = close_frame(&self.name, ABANDONED);
                send_or_keep(frame, &self.multiplexer.outgoing, &self.multiplexer.closing);
            }
        }
        self.multiplexer.streams.leave(&self.name);
    }
}
