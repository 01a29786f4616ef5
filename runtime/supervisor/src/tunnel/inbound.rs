//! What a gateway sends through a tunnel: frames in, messages out.

use asp_proto::supervisor::PppClientFrame;
use tonic::{Status, Streaming};

use crate::ppp::{FromGateway, decode};

#[derive(Debug)]
pub struct Inbound {
    tunnel_id: String,
    frames: Streaming<PppClientFrame>,
    /// The frame that named the tunnel, not read yet.
    first: Option<PppClientFrame>,
    bytes: u64,
}

impl Inbound {
    /// `first` is the frame that named the tunnel.
    pub fn new(first: PppClientFrame, frames: Streaming<PppClientFrame>) -> Inbound {
        Inbound { tunnel_id: first.tunnel_id.clone(), frames, first: Some(first), bytes: 0 }
    }

    /// The next message; `None` when the gateway sends no more. Safe to cancel.
    pub async fn next(&mut self) -> Result<Option<FromGateway>, Status> {
        loop {
            let frame = match self.first.take() {
                Some(frame) => frame,
                None => match self.frames.message().await? {
                    Some(frame) => frame,
                    None => return Ok(None),
                },
            };
            if !frame.tunnel_id.is_empty() && frame.tunnel_id != self.tunnel_id {
                return Err(Status::invalid_argument("a frame names another tunnel"));
            }
            let Some(any) = frame.ppp else { continue };
            self.bytes += any.value.len() as u64;
            return decode(&any).map(Some).map_err(|error| Status::invalid_argument(error.to_string()));
        }
    }

    /// Payload bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
