//! A tunnel and its frames.

use std::time::{Duration, SystemTime};

use asp_proto::envelope::packed;
use asp_proto::plugin::cancel_request::Mode;
use asp_proto::plugin::client_message::Payload as In;
use asp_proto::plugin::server_message::Payload as Out;
use asp_proto::plugin::{CancelRequest, ClientMessage, DeliverUserInput, InvokeRequest, Json, ServerMessage};
use asp_proto::supervisor::TunnelEvent;
use asp_proto::supervisor::ppp_server_frame::Payload;
use asp_proto::supervisor::tunnel_event::Type;
use asp_runtime_client::admission::{Account, EndedTunnel, fault};
use asp_runtime_client::multiplexer::{StreamEvent, TunnelStream};
use asp_runtime_client::runtimes::metrics;
use asp_runtime_client::tunnel::TunnelContext;
use prost::{Message, Name};
use prost_types::Any;
use serde_json::Value;
use tokio::time::timeout;
use tonic::Status;

use super::super::lines;
use super::PATIENCE;

/// A frame of a tunnel, in short form.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    Message(Out),
    Other(Any),
    Event(TunnelEvent),
    End(Option<Status>),
}

impl Said {
    pub(crate) fn is_event(&self, kind: Type) -> bool {
        matches!(self, Said::Event(event) if event.r#type() == kind)
    }

    /// Returns the details of a WORKER_CRASHED.
    pub(crate) fn crash(&self) -> Option<(String, bool)> {
        let Said::Event(event) = self else { return None };
        let details = event.details.clone().filter(|_| event.r#type() == Type::WorkerCrashed)?;
        let details = metrics::json(details);
        Some((details["cause"].as_str()?.to_owned(), details["delivered"].as_bool()?))
    }

    /// Returns the code of a `failed`.
    pub(crate) fn failed(&self) -> Option<&str> {
        match self {
            Said::Message(Out::Failed(failed)) => Some(&failed.code),
            _ => None,
        }
    }

    /// Returns the JSON text of the output of a `completed`.
    pub(crate) fn output_text(&self) -> Option<String> {
        match self {
            Said::Message(Out::Completed(done)) => {
                Some(String::from_utf8(done.output.as_ref()?.value.to_vec()).unwrap())
            }
            Said::Message(Out::LineAnswer(_)) => Some(lines::structured(self)?.text().to_owned()),
            _ => None,
        }
    }

    /// Returns the output of a `completed`.
    pub(crate) fn output(&self) -> Option<Value> {
        match self {
            Said::Message(Out::Completed(done)) => {
                Some(serde_json::from_slice(&done.output.as_ref()?.value).unwrap())
            }
            Said::Message(Out::LineAnswer(_)) => Some(lines::structured(self)?.view().clone()),
            _ => None,
        }
    }
}

/// A tunnel; dropping it closes it.
pub(crate) struct Tunnel {
    pub(crate) id: String,
    pub(super) stream: TunnelStream,
    /// Its end, once that was read: well or with a fault.
    pub(super) end: Option<Option<Status>>,
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        if self.end.is_none() {
            let tunnel = EndedTunnel { id: self.id.clone(), reason: "dropped", account: account() };
            // Err: the stream has ended, and the tunnel with it.
            let _ = self.stream.multiplexer().close(tunnel);
        }
    }
}

pub(super) fn account() -> Account {
    TunnelContext::default().account("python")
}

/// Builds the message that begins a call, with its arguments as text.
pub(crate) fn invocation(request_id: &str, arguments: &str, end: Option<Duration>) -> ClientMessage {
    let invoke = InvokeRequest {
        request_id: request_id.into(),
        arguments: Some(Json { value: arguments.as_bytes().to_vec() }),
        deadline: end.map(|end| (SystemTime::now() + end).into()),
        ..InvokeRequest::default()
    };
    ClientMessage { payload: Some(In::Invoke(invoke)) }
}

impl Tunnel {
    pub(crate) async fn frame(&self, message: &impl Name) {
        // Err: the runtime ended the stream, as the frames show.
        let _ = self.stream.send(packed(message)).await;
    }

    pub(crate) async fn say(&self, payload: In) {
        self.frame(&ClientMessage { payload: Some(payload) }).await;
    }

    pub(crate) async fn invoke(&self, request_id: &str, arguments: &Value) {
        self.invoke_until(request_id, arguments, None).await;
    }

    pub(crate) async fn invoke_until(&self, request_id: &str, arguments: &Value, end: Option<Duration>) {
        self.invoke_text(request_id, &arguments.to_string(), end).await;
    }

    pub(super) async fn invoke_text(&self, request_id: &str, arguments: &str, end: Option<Duration>) {
        self.frame(&invocation(request_id, arguments, end)).await;
    }

    /// Answers a question of the call.
    pub(crate) async fn answer(&self, request_id: &str, elicitation_id: &str, fields: &Value) {
        let answer = DeliverUserInput {
            request_id: request_id.into(),
            elicitation_id: elicitation_id.into(),
            fields: Some(Json { value: fields.to_string().into_bytes() }),
            ..DeliverUserInput::default()
        };
        self.say(In::UserInput(answer)).await;
    }

    pub(crate) async fn cancel(&self, request_id: &str) {
        self.cancel_as(request_id, Mode::Hard).await;
    }

    pub(crate) async fn cancel_as(&self, request_id: &str, mode: Mode) {
        let request_id = request_id.to_owned();
        let mode = mode.into();
        self.say(In::Cancel(CancelRequest { request_id, mode, ..CancelRequest::default() })).await;
    }

    pub(crate) async fn next(&mut self) -> Said {
        if let Some(end) = &self.end {
            return Said::End(end.clone());
        }
        match timeout(PATIENCE, self.stream.next()).await.expect("the tunnel hangs") {
            StreamEvent::Payload(Payload::Event(event)) => {
                if event.r#type() == Type::TunnelClosed {
                    self.end = Some(fault(&event));
                }
                Said::Event(event)
            }
            StreamEvent::Payload(Payload::Ppp(any)) if any.type_url.ends_with(".ServerMessage") => {
                Said::Message(ServerMessage::decode(any.value.as_slice()).unwrap().payload.unwrap())
            }
            StreamEvent::Payload(Payload::Ppp(any)) => Said::Other(any),
            StreamEvent::End(status) => Said::End(self.end.insert(status).clone()),
            other => panic!("no frame of a tunnel: {other:?}"),
        }
    }

    /// Reads everything until the tunnel's end, which is the last element.
    pub(crate) async fn rest(&mut self) -> Vec<Said> {
        let mut all = Vec::new();
        loop {
            let said = self.next().await;
            let end = matches!(said, Said::End(_));
            all.push(said);
            if end {
                return all;
            }
        }
    }

    /// Reads until `wanted` holds, and returns that frame.
    pub(crate) async fn until(&mut self, mut wanted: impl FnMut(&Said) -> bool) -> Said {
        loop {
            let said = self.next().await;
            if wanted(&said) {
                return said;
            }
            assert!(!matches!(said, Said::End(_)), "the tunnel ended: {said:?}");
        }
    }

    pub(crate) async fn until_event(&mut self, kind: Type) -> Said {
        self.until(|said| said.is_event(kind)).await
    }

    /// Reads until the worker sends something.
    pub(crate) async fn until_message(&mut self) -> Said {
        self.until(|said| matches!(said, Said::Message(_))).await
    }
}

pub(crate) fn crash(said: &[Said]) -> Option<(String, bool)> {
    said.iter().find_map(Said::crash)
}

pub(crate) fn output(said: &[Said]) -> Option<Value> {
    said.iter().find_map(Said::output)
}
