//! Connection to a new worker: the session stream on its socket or on its standard streams, and its `init`.
//!
//! Keeps true: a worker takes calls only once its `init`, or the first request of a stdio server's protocol, was answered;
//! the size of its self-description is limited.

use std::collections::BTreeMap;
use std::sync::Arc;

use asp_platform::secret::Secret;
use asp_proto::plugin::server_message::Payload;
use asp_proto::plugin::tool_plugin_client::ToolPluginClient;
use asp_proto::plugin::{ClientMessage, InitRequest, client_message};
use asp_proto::supervisor::LineProtocol;
use futures::stream;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;

use super::MessageStream;
use crate::cause::Cause;
use crate::ppp::MAX_MESSAGE;
use crate::worker::heartbeat::MISSED_PINGS;
use crate::worker::logs::Meter;
use crate::worker::process::Process;
use crate::worker::session::TO_WORKER;
use crate::worker::socket::WorkerSocket;
use crate::worker::stdio;

/// Maximum number of entries of a worker's `caps` that are kept.
const MAX_CAPS: usize = 32;
/// Maximum size of one entry in bytes: entries are kept as long as the worker and sent to each tunnel.
const MAX_CAP_BYTES: usize = 512;

/// A session stream whose `init` was answered.
pub(super) struct OpenSession {
    pub(super) channel: Option<Channel>,
    pub(super) caps: BTreeMap<String, String>,
    pub(super) token: MetadataValue<Ascii>,
    pub(super) to_worker: mpsc::Sender<ClientMessage>,
    pub(super) pings: mpsc::Sender<ClientMessage>,
    pub(super) stream: MessageStream,
}

/// Endpoint through which the runtime talks to a worker.
pub(super) enum WorkerEndpoint {
    Socket { socket: WorkerSocket, token: Secret, uid: u32, secrets: BTreeMap<String, Secret> },
    Pipes { pipes: (ChildStdin, ChildStdout), logs: Arc<Meter>, lines: Arc<LineProtocol> },
}

impl WorkerEndpoint {
    /// `lines`: the protocol of a stdio server, which has its secrets already.
    pub(super) fn of(
        process: &mut Process,
        lines: Arc<LineProtocol>,
        secrets: BTreeMap<String, Secret>,
    ) -> WorkerEndpoint {
        match process.pipes.take() {
            Some(pipes) => WorkerEndpoint::Pipes { pipes, logs: process.logs(), lines },
            None => {
                let socket = process.socket.clone();
                let token = process.token.clone();
                WorkerEndpoint::Socket { socket, token, uid: process.uid, secrets }
            }
        }
    }
}

/// Opens the session.
pub(super) async fn open(endpoint: WorkerEndpoint) -> Result<OpenSession, Cause> {
    match endpoint {
        WorkerEndpoint::Socket { socket, token, uid, secrets } => {
            open_session(&socket, token, uid, secrets).await
        }
        WorkerEndpoint::Pipes { pipes, logs, lines } => {
            let (bridge, inbox) = stdio::open(pipes, logs, lines).await?;
            let (to_worker, messages) = mpsc::channel(TO_WORKER);
            let task = AbortOnDropHandle::new(tokio::spawn(bridge.run(messages)));
            Ok(OpenSession {
                channel: None,
                caps: BTreeMap::from([("shim".to_owned(), "mcp-stdio".to_owned())]),
                token: MetadataValue::from_static(""),
                pings: to_worker.clone(),
                to_worker,
                stream: MessageStream::Stdio { inbox, _bridge: task },
            })
        }
    }
}

async fn open_session(
    socket: &WorkerSocket,
    token: Secret,
    uid: u32,
    secrets: BTreeMap<String, Secret>,
) -> Result<OpenSession, Cause> {
    let channel = socket.connect(uid).await?;
    let mut bearer = MetadataValue::try_from(format!("Bearer {}", token.expose()))
        .map_err(|_| Cause::Protocol("the token is not text"))?;
    bearer.set_sensitive(true);
    let (to_worker, messages) = mpsc::channel(TO_WORKER);
    let secrets = secrets.into_iter().map(|(name, secret)| (name, secret.expose().to_owned())).collect();
    let init = client_message::Payload::Init(InitRequest { secrets, ..InitRequest::default() });
    // Sent before the stream is opened, because a server may send nothing until it has received something. The channel
    // has capacity.
    let _ = to_worker.try_send(ClientMessage { payload: Some(init) });
    let (pings, due) = mpsc::channel(MISSED_PINGS);
    let mut request = Request::new(stream::select(ReceiverStream::new(due), ReceiverStream::new(messages)));
    request.metadata_mut().insert("authorization", bearer.clone());
    let mut client = ToolPluginClient::new(channel.clone()).max_decoding_message_size(MAX_MESSAGE);
    let broken = |status: tonic::Status| {
        tracing::debug!(%status, "a worker's session stream was not opened");
        Cause::Protocol("the session stream was not opened")
    };
    let mut stream = client.session(request).await.map_err(broken)?.into_inner();
    match stream.message().await.map_err(broken)?.and_then(|message| message.payload) {
        Some(Payload::Init(answer)) if answer.ok => {
            let short = |(name, value): &(String, String)| name.len() + value.len() <= MAX_CAP_BYTES;
            let caps = answer.caps.into_iter().filter(short).take(MAX_CAPS).collect();
            let stream = MessageStream::Session(Box::new(stream));
            Ok(OpenSession { channel: Some(channel), caps, token: bearer, to_worker, pings, stream })
        }
        Some(Payload::Init(_)) => Err(Cause::Protocol("init was refused")),
        _ => Err(Cause::Protocol("the first message does not answer init")),
    }
}
