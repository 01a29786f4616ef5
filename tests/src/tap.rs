//! A tap on the wire between a gateway and a language runtime: passes everything on and writes down what passed.
//!
//! Keeps true: it changes no message; a message it cannot read is written down as such.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use anyhow::{Context, Result};
use asp_proto::plugin::{ClientMessage, ServerMessage, client_message, server_message};
use asp_proto::supervisor::runtime_supervisor_client::RuntimeSupervisorClient;
use asp_proto::supervisor::runtime_supervisor_server::{RuntimeSupervisor, RuntimeSupervisorServer};
use asp_proto::supervisor::{
    AllocateWorkerRequest, AllocateWorkerResponse, CancelAllocationRequest, CancelAllocationResponse,
    CloseTunnelRequest, CloseTunnelResponse, DrainRequest, DrainResponse, EnsurePluginRequest,
    EnsurePluginResponse, HealthRequest, HealthResponse, MetricsEvent, MetricsStreamRequest, PppClientFrame,
    PppServerFrame, admission, ppp_server_frame, tunnel_event,
};
use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use prost::Message;
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};

/// Lines kept of one plugin.
const LINES: usize = 10_000;

/// A running tap. Dropping it closes the socket.
pub struct Tap {
    pub socket: PathBuf,
    record: Record,
    server: JoinHandle<Result<(), tonic::transport::Error>>,
    _directory: TempDir,
}

/// What passed, in order: `allocate <plugin> <status>`, `close`, `cancel_allocation`, `> <client message>`,
/// `< <worker message>`, `event <tunnel event>`.
#[derive(Clone, Default)]
struct Record(Arc<Mutex<Vec<String>>>);

impl Record {
    fn write(&self, line: String) {
        let mut lines = self.0.lock();
        if lines.len() < LINES {
            lines.push(line);
        }
    }
}

impl Tap {
    /// Listens on a socket of its own and passes on to `runtime`.
    pub fn start(runtime: &Path) -> Result<Tap> {
        let directory = tempfile::Builder::new().prefix("tap").tempdir()?;
        let socket = directory.path().join("api.sock");
        let listener = UnixListener::bind(&socket).context("listen on the tap's socket")?;
        let channel = Endpoint::from_shared(format!("unix:{}", runtime.display()))?.connect_lazy();
        let record = Record::default();
        let passing = Passing { next: RuntimeSupervisorClient::new(channel), record: record.clone() };
        let served = Server::builder().add_service(RuntimeSupervisorServer::new(passing));
        let server = tokio::spawn(served.serve_with_incoming(UnixListenerStream::new(listener)));
        Ok(Tap { socket, record, server, _directory: directory })
    }

    /// What has passed since the last call of this.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.record.0.lock())
    }

    /// How many messages of workers have passed since the last [`Tap::take`].
    pub fn heard(&self) -> usize {
        self.record.0.lock().iter().filter(|line| line.starts_with("< ")).count()
    }

    /// Whether a line of what has passed begins so.
    pub fn has(&self, start: &str) -> bool {
        self.record.0.lock().iter().any(|line| line.starts_with(start))
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.server.abort();
    }
}

struct Passing {
    next: RuntimeSupervisorClient<Channel>,
    record: Record,
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl RuntimeSupervisor for Passing {
    type ProxyPppStream = Answers<PppServerFrame>;
    type MetricsStreamStream = Answers<MetricsEvent>;

    async fn ensure_plugin(&self, request: Request<EnsurePluginRequest>) -> Passed<EnsurePluginResponse> {
        self.next.clone().ensure_plugin(request.into_inner()).await
    }

    async fn allocate_worker(
        &self,
        request: Request<AllocateWorkerRequest>,
    ) -> Passed<AllocateWorkerResponse> {
        let request = request.into_inner();
        let plugin = request.plugin.clone().unwrap_or_default().id;
        let answer = self.next.clone().allocate_worker(request).await?;
        let status = answer.get_ref().admission.as_ref().map(|admission| admission.status());
        let status = status.unwrap_or(admission::Status::Unspecified);
        self.record.write(format!("allocate {plugin} {}", status.as_str_name()));
        Ok(answer)
    }

    async fn proxy_ppp(&self, request: Request<Streaming<PppClientFrame>>) -> Passed<Self::ProxyPppStream> {
        let record = self.record.clone();
        let frames = request.into_inner().filter_map(move |frame| {
            let frame = frame.ok();
            if let Some(ppp) = frame.as_ref().and_then(|frame| frame.ppp.as_ref()) {
                record.write(client(&ppp.value));
            }
            std::future::ready(frame)
        });
        let answers = self.next.clone().proxy_ppp(frames).await?.into_inner();
        let record = self.record.clone();
        let written = answers.inspect(move |frame| match frame.as_ref().map(|frame| &frame.payload) {
            Ok(Some(ppp_server_frame::Payload::Ppp(ppp))) => record.write(server(&ppp.value)),
            Ok(Some(ppp_server_frame::Payload::Event(event))) => {
                let kind: tunnel_event::Type = event.r#type();
                record.write(format!("event {}", kind.as_str_name()));
            }
            Ok(None) => record.write("unreadable frame".into()),
            Err(_) => {}
        });
        Ok(Response::new(Box::pin(written)))
    }

    async fn close_tunnel(&self, request: Request<CloseTunnelRequest>) -> Passed<CloseTunnelResponse> {
        let answer = self.next.clone().close_tunnel(request.into_inner()).await?;
        let mut figures: Vec<&str> =
            answer.get_ref().stats.iter().flat_map(|stats| stats.fields.keys().map(String::as_str)).collect();
        figures.sort_unstable();
        self.record.write(format!("close {}", figures.join(" ")));
        Ok(answer)
    }

    async fn cancel_allocation(
        &self,
        request: Request<CancelAllocationRequest>,
    ) -> Passed<CancelAllocationResponse> {
        self.record.write("cancel_allocation".into());
        self.next.clone().cancel_allocation(request.into_inner()).await
    }

    async fn health(&self, request: Request<HealthRequest>) -> Passed<HealthResponse> {
        self.next.clone().health(request.into_inner()).await
    }

    async fn metrics_stream(
        &self,
        request: Request<MetricsStreamRequest>,
    ) -> Passed<Self::MetricsStreamStream> {
        let events = self.next.clone().metrics_stream(request.into_inner()).await?.into_inner();
        Ok(Response::new(Box::pin(events)))
    }

    async fn drain(&self, request: Request<DrainRequest>) -> Passed<DrainResponse> {
        self.next.clone().drain(request.into_inner()).await
    }
}

type Passed<T> = Result<Response<T>, Status>;

fn client(bytes: &[u8]) -> String {
    let name = match ClientMessage::decode(bytes).ok().and_then(|message| message.payload) {
        Some(client_message::Payload::Init(_)) => "init",
        Some(client_message::Payload::Invoke(_)) => "invoke",
        Some(client_message::Payload::Cancel(_)) => "cancel",
        Some(client_message::Payload::UserInput(_)) => "user_input",
        Some(client_message::Payload::DelegationResult(_)) => "delegation_result",
        Some(client_message::Payload::Ping(_)) => "ping",
        Some(client_message::Payload::CheckpointAck(_)) => "checkpoint_ack",
        None => "unreadable",
    };
    format!("> {name}")
}

fn server(bytes: &[u8]) -> String {
    let name = match ServerMessage::decode(bytes).ok().and_then(|message| message.payload) {
        Some(server_message::Payload::Init(init)) => return format!("< init ok:{}", init.ok),
        Some(server_message::Payload::Status(status)) => return format!("< status {}", status.phase),
        Some(server_message::Payload::Progress(_)) => "progress",
        Some(server_message::Payload::Chunk(_)) => "chunk",
        Some(server_message::Payload::Artifact(_)) => "artifact",
        Some(server_message::Payload::ArtifactData(_)) => "artifact_data",
        Some(server_message::Payload::Elicitation(asked)) => {
            return format!("< elicitation {}", asked.elicitation_id);
        }
        Some(server_message::Payload::Delegation(asked)) => {
            return format!("< delegation {}", asked.delegate_id);
        }
        Some(server_message::Payload::Log(line)) => return format!("< log {}", line.message),
        Some(server_message::Payload::Completed(_)) => "completed",
        Some(server_message::Payload::Failed(failed)) => return format!("< failed {}", failed.code),
        Some(server_message::Payload::Cancel(cancel)) => {
            return format!("< cancel accepted:{}", cancel.accepted);
        }
        Some(server_message::Payload::Pong(_)) => "pong",
        Some(server_message::Payload::Checkpoint(_)) => "checkpoint",
        None => "unreadable",
    };
    format!("< {name}")
}
