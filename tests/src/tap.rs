//! A tap on the wire between a gateway and a language runtime: passes everything on and writes it into a journal.
//!
//! Keeps true: it changes no message; a message it cannot read is written down as such.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use anyhow::{Context, Result};
use asp_proto::plugin::{ClientMessage, Json, ServerMessage, client_message, server_message};
use asp_proto::supervisor::runtime_supervisor_client::RuntimeSupervisorClient;
use asp_proto::supervisor::runtime_supervisor_server::{RuntimeSupervisor, RuntimeSupervisorServer};
use asp_proto::supervisor::{
    AllocateWorkerRequest, AllocateWorkerResponse, CancelAllocationRequest, CancelAllocationResponse,
    CloseTunnelRequest, CloseTunnelResponse, DrainRequest, DrainResponse, EndExecutionRequest,
    EndExecutionResponse, EnsurePluginRequest, EnsurePluginResponse, HealthRequest, HealthResponse,
    MetricsEvent, MetricsStreamRequest, PppClientFrame, PppServerFrame, admission, ppp_server_frame,
    tunnel_event,
};
use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use prost::Message;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};

use crate::journal::Journal;

/// Largest message that passes: above the answer of a stdio server, of 16 MiB.
const MESSAGE_BYTES: usize = 17 << 20;

/// What a last frame tells of.
const COST: &str = "close bytes_in bytes_out cpu_ms duration_ms rss_max";

/// A running tap. Dropping it closes the socket.
///
/// Lines of its journal: `allocate <plugin> <status>`, `close`, `cancel_allocation`, `> <client message>`,
/// `< <worker message>`, `event <tunnel event>`; after the name of a message its fields as JSON, as far as tests read them. A
/// message that came along with the request for a place is written when a worker took it: so the answer says, or the result
/// in its stead.
pub struct Tap {
    pub socket: PathBuf,
    journal: Journal,
    server: JoinHandle<Result<(), tonic::transport::Error>>,
    _directory: TempDir,
}

impl Tap {
    /// Listens on a socket of its own and passes on to `runtime`.
    pub fn start(runtime: &Path) -> Result<Tap> {
        let directory = tempfile::Builder::new().prefix("tap").tempdir()?;
        let socket = directory.path().join("api.sock");
        let listener = UnixListener::bind(&socket).context("listen on the tap's socket")?;
        let channel = Endpoint::from_shared(format!("unix:{}", runtime.display()))?.connect_lazy();
        let journal = Journal::default();
        let next = RuntimeSupervisorClient::new(channel).max_decoding_message_size(MESSAGE_BYTES);
        let passing = RuntimeSupervisorServer::new(Passing { next, journal: journal.clone() });
        let served = Server::builder().add_service(passing.max_decoding_message_size(MESSAGE_BYTES));
        let server = tokio::spawn(served.serve_with_incoming(UnixListenerStream::new(listener)));
        Ok(Tap { socket, journal, server, _directory: directory })
    }

    /// What has passed since the last call of this.
    pub fn take(&self) -> Vec<String> {
        self.journal.take()
    }

    /// How many messages of workers have passed since the last [`Tap::take`].
    pub fn heard(&self) -> usize {
        self.journal.count("< ")
    }

    /// Whether a line of what has passed begins so.
    pub fn has(&self, start: &str) -> bool {
        self.journal.has(start)
    }

    /// Returns the journal.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.server.abort();
    }
}

struct Passing {
    next: RuntimeSupervisorClient<Channel>,
    journal: Journal,
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
        self.next.clone().allocate_worker(request.into_inner()).await
    }

    async fn proxy_ppp(&self, request: Request<Streaming<PppClientFrame>>) -> Passed<Self::ProxyPppStream> {
        let watch = Arc::new(Watch { journal: self.journal.clone(), asked: Mutex::default() });
        let watching = watch.clone();
        let frames = request.into_inner().filter_map(move |frame| {
            let frame = frame.ok();
            frame.iter().for_each(|frame| watching.up(frame));
            std::future::ready(frame)
        });
        let answers = self.next.clone().proxy_ppp(frames).await?.into_inner();
        let written = answers.inspect(move |frame| frame.iter().for_each(|frame| watch.down(frame)));
        Ok(Response::new(Box::pin(written)))
    }

    async fn close_tunnel(&self, request: Request<CloseTunnelRequest>) -> Passed<CloseTunnelResponse> {
        let answer = self.next.clone().close_tunnel(request.into_inner()).await?;
        self.journal.write(closed(answer.get_ref()));
        Ok(answer)
    }

    async fn cancel_allocation(
        &self,
        request: Request<CancelAllocationRequest>,
    ) -> Passed<CancelAllocationResponse> {
        self.journal.write("cancel_allocation".into());
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

    async fn end_execution(&self, request: Request<EndExecutionRequest>) -> Passed<EndExecutionResponse> {
        self.next.clone().end_execution(request.into_inner()).await
    }
}

type Passed<T> = Result<Response<T>, Status>;

/// Both directions of one ProxyPpp stream.
struct Watch {
    journal: Journal,
    /// Requests for a place without an answer, by the gateway's names: the plugin, and what came along.
    asked: Mutex<HashMap<String, (String, Vec<String>)>>,
}

impl Watch {
    fn up(&self, frame: &PppClientFrame) {
        let Some(ppp) = &frame.ppp else { return };
        if ppp.type_url.ends_with(".AllocateWorkerRequest") {
            let request = AllocateWorkerRequest::decode(ppp.value.as_slice()).unwrap_or_default();
            let plugin = request.plugin.unwrap_or_default().id;
            let work = request.work.iter().map(|work| client(&work.value)).collect();
            self.asked.lock().insert(frame.tunnel_id.clone(), (plugin, work));
        } else if !ppp.type_url.ends_with(".CloseTunnelRequest") {
            self.journal.write(client(&ppp.value));
        }
    }

    fn down(&self, frame: &PppServerFrame) {
        self.payload(frame);
        if frame.closed.is_some() {
            self.journal.write(COST.to_owned());
        }
    }

    fn payload(&self, frame: &PppServerFrame) {
        let ppp = match &frame.payload {
            Some(ppp_server_frame::Payload::Ppp(ppp)) => ppp,
            Some(ppp_server_frame::Payload::Event(event)) => {
                let kind: tunnel_event::Type = event.r#type();
                return self.journal.write(format!("event {}", kind.as_str_name()));
            }
            None => return self.journal.write("unreadable frame".into()),
        };
        if ppp.type_url.ends_with(".AllocateWorkerResponse") {
            let answer = AllocateWorkerResponse::decode(ppp.value.as_slice()).unwrap_or_default();
            let (plugin, along) = self.asked.lock().remove(&frame.tunnel_id).unwrap_or_default();
            self.journal.write(allocated(&plugin, &answer));
            if answer.took {
                along.into_iter().for_each(|line| self.journal.write(line));
            }
        } else if ppp.type_url.ends_with(".CloseTunnelResponse") {
            self.journal
                .write(closed(&CloseTunnelResponse::decode(ppp.value.as_slice()).unwrap_or_default()));
        } else {
            let begun = self.asked.lock().remove(&frame.tunnel_id);
            if let Some((plugin, along)) = begun {
                self.journal.write(format!("allocate {plugin} ADMITTED"));
                along.into_iter().for_each(|line| self.journal.write(line));
            }
            self.journal.write(server(&ppp.value));
        }
    }
}

fn allocated(plugin: &str, answer: &AllocateWorkerResponse) -> String {
    let status = answer.admission.as_ref().map(|admission| admission.status());
    format!("allocate {plugin} {}", status.unwrap_or(admission::Status::Unspecified).as_str_name())
}

fn closed(answer: &CloseTunnelResponse) -> String {
    let mut figures: Vec<&str> =
        answer.stats.iter().flat_map(|stats| stats.fields.keys().map(String::as_str)).collect();
    figures.sort_unstable();
    format!("close {}", figures.join(" "))
}

fn client(bytes: &[u8]) -> String {
    let name = match ClientMessage::decode(bytes).ok().and_then(|message| message.payload) {
        Some(client_message::Payload::Init(_)) => "init",
        Some(client_message::Payload::Invoke(invoke)) => {
            let call = invoke.request_id;
            let primitive = invoke.primitive;
            let version = invoke.version;
            let arguments = value(invoke.arguments.as_ref());
            let fields =
                json!({"call": call, "primitive": primitive, "version": version, "arguments": arguments});
            return format!("> invoke {fields}");
        }
        Some(client_message::Payload::Cancel(cancel)) => {
            return format!("> cancel {}", json!({"call": cancel.request_id, "reason": cancel.reason}));
        }
        Some(client_message::Payload::UserInput(input)) => {
            return format!("> user_input {} {}", input.elicitation_id, value(input.fields.as_ref()));
        }
        Some(client_message::Payload::DelegationResult(answer)) => {
            let fields = json!({"result": value(answer.result.as_ref()), "error": answer.error});
            return format!("> delegation_result {fields}");
        }
        Some(client_message::Payload::Ping(_)) => "ping",
        Some(client_message::Payload::CheckpointAck(_)) => "checkpoint_ack",
        Some(client_message::Payload::McpAnswer(_)) => "mcp_answer",
        Some(client_message::Payload::LineRequest(line)) => return format!("> line {}", line.method),
        Some(client_message::Payload::StorageAnswer(_)) => "storage_answer",
        None => "unreadable",
    };
    format!("> {name}")
}

fn server(bytes: &[u8]) -> String {
    let name = match ServerMessage::decode(bytes).ok().and_then(|message| message.payload) {
        Some(server_message::Payload::Init(init)) => return format!("< init ok:{}", init.ok),
        Some(server_message::Payload::Status(status)) => return format!("< status {}", status.phase),
        Some(server_message::Payload::Progress(progress)) => {
            let fields = json!({"percent": progress.percent, "message": progress.message});
            return format!("< progress {fields}");
        }
        Some(server_message::Payload::Chunk(_)) => "chunk",
        Some(server_message::Payload::Artifact(artifact)) => {
            let fields = json!({"uri": artifact.uri, "contentType": artifact.content_type});
            return format!("< artifact {} {fields}", artifact.r#type);
        }
        Some(server_message::Payload::ArtifactData(_)) => "artifact_data",
        Some(server_message::Payload::ResourceChanged(_)) => "resource_changed",
        Some(server_message::Payload::ElicitationCompleted(_)) => "elicitation_completed",
        Some(server_message::Payload::McpRequested(asked)) => return format!("< mcp {}", asked.method),
        Some(server_message::Payload::McpListsChanged(_)) => "mcp_lists_changed",
        Some(server_message::Payload::LineAnswer(_)) => "line_answer",
        Some(server_message::Payload::LineNotification(line)) => return format!("< line {}", line.method),
        Some(server_message::Payload::Elicitation(asked)) => {
            let fields: Vec<&str> = asked.fields.iter().map(|field| field.name.as_str()).collect();
            return format!("< elicitation {} {}", asked.elicitation_id, fields.join(" "));
        }
        Some(server_message::Payload::Delegation(asked)) => {
            return format!("< delegation {} {}", asked.delegate_id, value(asked.input.as_ref()));
        }
        Some(server_message::Payload::Log(line)) => return format!("< log {}", line.message),
        Some(server_message::Payload::Completed(completed)) => {
            return format!("< completed {}", value(completed.output.as_ref()));
        }
        Some(server_message::Payload::Failed(failed)) => return format!("< failed {}", failed.code),
        Some(server_message::Payload::Cancel(cancel)) => {
            return format!("< cancel accepted:{}", cancel.accepted);
        }
        Some(server_message::Payload::Pong(_)) => "pong",
        Some(server_message::Payload::StorageRequested(_)) => "storage_requested",
        Some(server_message::Payload::Checkpoint(_)) => "checkpoint",
        None => "unreadable",
    };
    format!("< {name}")
}

/// Returns the JSON of a field; null for one that is absent.
fn value(json: Option<&Json>) -> Value {
    json.and_then(|json| serde_json::from_slice(&json.value).ok()).unwrap_or_default()
}
