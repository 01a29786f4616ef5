//! A language runtime that plays a script: the Runtime Supervisor API on a Unix socket, without workers.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use asp_proto::envelope::{LINES, packed};
use asp_proto::plugin::{
    ClientMessage, Completed, InitResponse, InvokeRequest, Json, LineAnswer, LineRequest, ServerMessage,
    client_message, server_message,
};
use asp_proto::supervisor::runtime_supervisor_server::{RuntimeSupervisor, RuntimeSupervisorServer};
use asp_proto::supervisor::*;
use asp_runtime_client::runtimes::{RuntimeTarget, Runtimes};
use futures::future::BoxFuture;
use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use prost::Message;
use prost_types::value::Kind;
use prost_types::{Any, Struct};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream, UnixListenerStream};
use tonic::transport::{Certificate, Identity, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};

#[path = "runtime/authority.rs"]
mod authority;
pub(crate) use authority::Authority;

pub(crate) const PYTHON: &str = "python";

/// Requests that the runtime received.
#[derive(Default)]
pub(crate) struct Told {
    /// Number of opened streams.
    pub streams: Mutex<usize>,
    /// Frames after the one that shares a stream.
    pub frames: Mutex<usize>,
    /// Number of reports of the gateway that it had read half a window.
    pub acknowledged: Mutex<usize>,
    pub allocations: Mutex<Vec<AllocateWorkerRequest>>,
    pub closed: Mutex<Vec<CloseTunnelRequest>>,
    pub cancelled: Mutex<Vec<CancelAllocationRequest>>,
    pub ensured: Mutex<Vec<EnsurePluginRequest>>,
    pub drained: Mutex<Vec<DrainRequest>>,
    /// Calls whose execution was to be ended.
    pub to_end: Mutex<Vec<String>>,
    /// Events of the metrics stream. Listeners are refused while there are none.
    pub events: Mutex<Vec<MetricsEvent>>,
    pub listeners: Mutex<Vec<MetricsStreamRequest>>,
}

type Play = Arc<dyn Fn(usize, Worker) -> BoxFuture<'static, ()> + Send + Sync>;
type Admit = Arc<dyn Fn(usize) -> AllocateWorkerResponse + Send + Sync>;
type End = Arc<dyn Fn() -> BoxFuture<'static, Result<(), Status>> + Send + Sync>;
type Ensure = Arc<dyn Fn(PluginRef) -> BoxFuture<'static, Result<(), Status>> + Send + Sync>;

/// The scripts of a runtime: how it admits and what its workers do, by the number of the allocation from 0.
#[derive(Clone)]
pub(crate) struct Script {
    pub admit: Admit,
    pub play: Play,
    pub ensure: Ensure,
    /// Answer about a former execution.
    pub end: End,
    /// Duration of an admission.
    pub delay: Duration,
    /// Immediate answer of a worker to work that comes with its request; `None`: such work is not accepted.
    pub at_once: Option<fn(&Any) -> Any>,
}

impl Script {
    /// Admits everything at once.
    pub(crate) fn of<F, Played>(play: F) -> Script
    where
        F: Fn(usize, Worker) -> Played + Send + Sync + 'static,
        Played: Future<Output = ()> + Send + 'static,
    {
        let play: Play = Arc::new(move |n, worker| Box::pin(play(n, worker)));
        let ensure: Ensure = Arc::new(|_| Box::pin(async { Ok(()) }));
        let end: End = Arc::new(|| Box::pin(async { Ok(()) }));
        Script { admit: Arc::new(admitted), play, ensure, end, delay: Duration::ZERO, at_once: None }
    }

    /// Plays once, and is told by the sender when it may go on.
    pub(crate) fn until_told<F, Played>(play: F) -> (Script, oneshot::Sender<()>)
    where
        F: Fn(Worker, oneshot::Receiver<()>) -> Played + Send + Sync + 'static,
        Played: Future<Output = ()> + Send + 'static,
    {
        let (sender, told) = oneshot::channel();
        let told = Mutex::new(Some(told));
        let script = Script::of(move |_, worker| play(worker, told.lock().take().expect("one allocation")));
        (script, sender)
    }

    /// Answers every call with the only frame of its tunnel.
    pub(crate) fn answering(answer: fn(&Any) -> Any) -> Script {
        Script { at_once: Some(answer), ..Script::of(|_, _| async {}) }
    }

    pub(crate) fn taking(self, delay: Duration) -> Script {
        Script { delay, ..self }
    }

    /// Sets the answer of EnsurePlugin.
    pub(crate) fn ensuring<F, Ensured>(self, ensure: F) -> Script
    where
        F: Fn(PluginRef) -> Ensured + Send + Sync + 'static,
        Ensured: Future<Output = Result<(), Status>> + Send + 'static,
    {
        Script { ensure: Arc::new(move |plugin| Box::pin(ensure(plugin))), ..self }
    }

    /// Sets the answer to a request to end a former execution.
    pub(crate) fn ending<F, Ended>(self, end: F) -> Script
    where
        F: Fn() -> Ended + Send + Sync + 'static,
        Ended: Future<Output = Result<(), Status>> + Send + 'static,
    {
        Script { end: Arc::new(move || Box::pin(end())), ..self }
    }

    pub(crate) fn admitting(
        mut self,
        admit: impl Fn(usize) -> AllocateWorkerResponse + Send + Sync + 'static,
    ) -> Script {
        self.admit = Arc::new(admit);
        self
    }
}

fn handle(n: usize) -> Option<TunnelHandle> {
    Some(TunnelHandle { tunnel_id: format!("t-{n}"), ..TunnelHandle::default() })
}

/// With a worker, which takes the work that came along.
fn assigned(n: usize) -> Option<TunnelHandle> {
    handle(n).map(|handle| TunnelHandle { worker_local_id: "w".into(), ..handle })
}

pub(crate) fn admitted(n: usize) -> AllocateWorkerResponse {
    let admission = Admission { status: admission::Status::Admitted.into(), ..Admission::default() };
    AllocateWorkerResponse { admission: Some(admission), handle: assigned(n), queue: None, took: false }
}

pub(crate) fn queued(n: usize, position: f64, depth: f64) -> AllocateWorkerResponse {
    let admission = Admission { status: admission::Status::Queued.into(), ..Admission::default() };
    let queue = figures(&[("position", Kind::NumberValue(position)), ("depth", Kind::NumberValue(depth))]);
    AllocateWorkerResponse { admission: Some(admission), handle: handle(n), queue: Some(queue), took: false }
}

pub(crate) fn rejected(reason: &str) -> AllocateWorkerResponse {
    let admission = Admission {
        status: admission::Status::Rejected.into(),
        reason: reason.into(),
        ..Admission::default()
    };
    AllocateWorkerResponse { admission: Some(admission), ..AllocateWorkerResponse::default() }
}

pub(crate) fn figures(members: &[(&str, Kind)]) -> Struct {
    let fields = members
        .iter()
        .map(|(name, kind)| ((*name).to_owned(), prost_types::Value { kind: Some(kind.clone()) }));
    Struct { fields: fields.collect() }
}

pub(crate) fn json_of(value: &Value) -> Option<Json> {
    Some(Json { value: value.to_string().into_bytes() })
}

/// The worker's end of one tunnel.
pub(crate) struct Worker {
    pub tunnel_id: String,
    pub told: Arc<Told>,
    frames: mpsc::UnboundedReceiver<Any>,
    out: mpsc::Sender<Result<PppServerFrame, Status>>,
}

impl Worker {
    /// The next frame's message as it was packed; `None` when the gateway closed the tunnel.
    pub(crate) async fn any(&mut self) -> Option<Any> {
        self.frames.recv().await
    }

    pub(crate) async fn next(&mut self) -> Option<client_message::Payload> {
        let any = self.any().await?;
        assert_eq!(any.type_url, "type.googleapis.com/asp.plugin.v1.ClientMessage");
        ClientMessage::decode(any.value.as_slice()).unwrap().payload
    }

    /// Answers `init` and returns the invoke.
    pub(crate) async fn begin(&mut self, caps: &[(&str, &str)]) -> InvokeRequest {
        let Some(client_message::Payload::Init(_)) = self.next().await else { panic!("no init") };
        let caps = caps.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.say(server_message::Payload::Init(InitResponse { ok: true, caps, ..InitResponse::default() }))
            .await;
        let Some(client_message::Payload::Invoke(invoke)) = self.next().await else { panic!("no invoke") };
        invoke
    }

    /// Answers `init` and returns the request to a stdio server.
    pub(crate) async fn begin_line(&mut self) -> LineRequest {
        let Some(client_message::Payload::Init(_)) = self.next().await else { panic!("no init") };
        self.say(server_message::Payload::Init(InitResponse { ok: true, ..InitResponse::default() })).await;
        let Some(client_message::Payload::LineRequest(request)) = self.next().await else {
            panic!("no line")
        };
        request
    }

    /// Answers a request to a stdio server by a result or an error.
    pub(crate) async fn answer_line(&self, request_id: &str, answer: Result<Value, Value>) {
        let (result, error) = match answer {
            Ok(result) => (json_of(&result), None),
            Err(error) => (None, json_of(&error)),
        };
        let answer = LineAnswer { request_id: request_id.to_owned(), result, error };
        self.say(server_message::Payload::LineAnswer(answer)).await;
    }

    pub(crate) async fn say(&self, payload: server_message::Payload) {
        let message = ServerMessage { payload: Some(payload) };
        self.say_any("asp.plugin.v1.ServerMessage", message.encode_to_vec()).await;
    }

    pub(crate) async fn say_any(&self, name: &str, value: Vec<u8>) {
        self.say_packed(Any { type_url: format!("type.googleapis.com/{name}"), value }).await;
    }

    pub(crate) async fn say_packed(&self, message: Any) {
        self.send(ppp_server_frame::Payload::Ppp(message)).await;
    }

    /// Ends the tunnel with a frame that tells its cost and nothing else.
    pub(crate) async fn closes(&self) {
        let closed = TunnelEvent {
            tunnel_id: self.tunnel_id.clone(),
            r#type: tunnel_event::Type::TunnelClosed.into(),
            ..TunnelEvent::default()
        };
        let payload = Some(ppp_server_frame::Payload::Event(closed));
        let frame = PppServerFrame {
            tunnel_id: self.tunnel_id.clone(),
            payload,
            closed: Some(TunnelCost::default()),
        };
        let _ = self.out.send(Ok(frame)).await;
    }

    pub(crate) async fn event(&self, event: tunnel_event::Type, message: &str, details: &[(&str, Kind)]) {
        let event = TunnelEvent {
            tunnel_id: self.tunnel_id.clone(),
            r#type: event.into(),
            message: message.into(),
            details: Some(figures(details)),
        };
        self.send(ppp_server_frame::Payload::Event(event)).await;
    }

    pub(crate) async fn crash(&self, delivered: bool) {
        let details =
            [("cause", Kind::StringValue("signal".into())), ("delivered", Kind::BoolValue(delivered))];
        self.event(tunnel_event::Type::WorkerCrashed, "", &details).await;
    }

    pub(crate) async fn complete(&self, invoke: &InvokeRequest, output: &Value) {
        let end = Completed {
            request_id: invoke.request_id.clone(),
            output: json_of(output),
            ..Completed::default()
        };
        self.say(server_message::Payload::Completed(end)).await;
    }

    /// Cuts the stream with an error.
    pub(crate) async fn cut(&self, status: Status) {
        let _ = self.out.send(Err(status)).await;
    }

    async fn send(&self, payload: ppp_server_frame::Payload) {
        let frame =
            PppServerFrame { tunnel_id: self.tunnel_id.clone(), payload: Some(payload), closed: None };
        let _ = self.out.send(Ok(frame)).await;
    }
}

/// A running runtime; it ends with its test.
pub(crate) struct Runtime {
    pub told: Arc<Told>,
    pub socket: PathBuf,
    /// Tokio runtime of the process, if it can be killed.
    process: Option<tokio::runtime::Runtime>,
    _directory: tempfile::TempDir,
}

/// A runtime on a port, reached by mutual TLS; returns its URL.
pub(crate) async fn start_with_tls(script: Script, authority: &Authority, role: &str) -> String {
    let (address, _) = start_with_tls_at("127.0.0.1:0", script, authority, role).await;
    format!("https://localhost:{}", address.port())
}

/// The same at an address; what it is told is seen.
pub(crate) async fn start_with_tls_at(
    address: &str,
    script: Script,
    authority: &Authority,
    role: &str,
) -> (SocketAddr, Arc<Told>) {
    let (certificate, key) = authority.sign(role);
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(certificate, key))
        .client_ca_root(Certificate::from_pem(authority.pem()));
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    let told = Arc::new(Told::default());
    let service = RuntimeSupervisorServer::new(Scripted { script, told: told.clone() });
    tokio::spawn(
        tonic::transport::Server::builder()
            .tls_config(tls)
            .unwrap()
            .add_service(service)
            .serve_with_incoming(TcpListenerStream::new(listener)),
    );
    (address, told)
}

impl Runtime {
    pub(crate) fn start(script: Script) -> Runtime {
        Runtime::start_in(script, &tokio::runtime::Handle::current(), None)
    }

    /// One that can be killed with all its connections.
    pub(crate) fn start_apart(script: Script) -> Runtime {
        let mut process = tokio::runtime::Builder::new_multi_thread();
        let process = process.worker_threads(1).enable_all().build().unwrap();
        let handle = process.handle().clone();
        Runtime::start_in(script, &handle, Some(process))
    }

    fn start_in(
        script: Script,
        handle: &tokio::runtime::Handle,
        process: Option<tokio::runtime::Runtime>,
    ) -> Runtime {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("runtime.sock");
        let told = Arc::new(Told::default());
        let _entered = handle.enter();
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let service = RuntimeSupervisorServer::new(Scripted { script, told: told.clone() });
        handle.spawn(
            tonic::transport::Server::builder()
                .add_service(service)
                .serve_with_incoming(UnixListenerStream::new(listener)),
        );
        Runtime { told, socket, process, _directory: directory }
    }

    /// Ends the process as SIGKILL would.
    pub(crate) fn kill(&mut self) {
        self.process.take().expect("it runs apart").shutdown_background();
        std::fs::remove_file(&self.socket).unwrap();
    }

    pub(crate) fn target(&self) -> RuntimeTarget {
        RuntimeTarget {
            languages: vec![PYTHON.into()],
            url: format!("unix:{}", self.socket.display()),
            peer: None,
        }
    }

    pub(crate) fn runtimes(&self) -> Runtimes {
        Runtimes::new(vec![self.target()]).unwrap()
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // Within a test, waiting for it is not allowed.
        self.process.take().into_iter().for_each(tokio::runtime::Runtime::shutdown_background);
    }
}

/// One stream, with all tunnels on it.
struct SharedStream {
    script: Script,
    told: Arc<Told>,
    out: mpsc::Sender<Result<PppServerFrame, Status>>,
    /// Tunnels by handle.
    tunnels: HashMap<String, mpsc::UnboundedSender<Any>>,
}

const API: &str = "type.googleapis.com/asp.runtime.supervisor.v1.";

impl SharedStream {
    async fn run(mut self, mut frames: Streaming<PppClientFrame>) {
        let first = frames.message().await.unwrap().unwrap();
        assert!(first.keepalive && first.tunnel_id.is_empty(), "the stream is shared");
        *self.told.streams.lock() += 1;
        while let Ok(Some(frame)) = frames.message().await {
            *self.told.frames.lock() += 1;
            let Some(any) = frame.ppp else {
                *self.told.acknowledged.lock() += usize::from(frame.keepalive);
                continue;
            };
            match any.type_url.strip_prefix(API) {
                Some("AllocateWorkerRequest") => {
                    let request = AllocateWorkerRequest::decode(any.value.as_slice()).unwrap();
                    self.allocate(frame.tunnel_id, request).await;
                }
                Some("CloseTunnelRequest") => {
                    let request = CloseTunnelRequest::decode(any.value.as_slice()).unwrap();
                    // Its worker hears the end.
                    self.tunnels.remove(&frame.tunnel_id);
                    let answer = close(&self.told, request).encode_to_vec();
                    self.say(frame.tunnel_id, "CloseTunnelResponse", answer).await;
                }
                Some(other) if other != "Credential" => panic!("a message {other}"),
                Some(_) | None => {
                    // Err: its worker is gone.
                    let _ = self.tunnels.get(&frame.tunnel_id).map(|tunnel| tunnel.send(any));
                }
            }
        }
    }

    async fn allocate(&mut self, name: String, request: AllocateWorkerRequest) {
        if let (Some(answer), Some(work)) = (self.script.at_once, &request.work) {
            let frame = answered(&name, answer(work));
            self.told.allocations.lock().push(request);
            let _ = self.out.send(Ok(frame)).await;
            return;
        }
        tokio::time::sleep(self.script.delay).await;
        let (n, answer) = allocate(&self.script, &self.told, request);
        let handle = answer.handle.clone();
        self.say(name, "AllocateWorkerResponse", answer.encode_to_vec()).await;
        let Some(TunnelHandle { tunnel_id, .. }) = handle else { return };
        let (sender, frames) = mpsc::unbounded_channel();
        self.tunnels.insert(tunnel_id.clone(), sender);
        let out = self.out.clone();
        let worker =
            Worker { tunnel_id: tunnel_id.clone(), told: self.told.clone(), frames, out: out.clone() };
        let played = (self.script.play)(n, worker);
        tokio::spawn(async move {
            played.await;
            let closed = TunnelEvent {
                tunnel_id: tunnel_id.clone(),
                r#type: tunnel_event::Type::TunnelClosed.into(),
                ..TunnelEvent::default()
            };
            let payload = Some(ppp_server_frame::Payload::Event(closed));
            let _ = out.send(Ok(PppServerFrame { tunnel_id, payload, closed: None })).await;
        });
    }

    async fn say(&self, tunnel_id: String, name: &str, value: Vec<u8>) {
        let any = Any { type_url: format!("{API}{name}"), value };
        let payload = Some(ppp_server_frame::Payload::Ppp(any));
        let _ = self.out.send(Ok(PppServerFrame { tunnel_id, payload, closed: None })).await;
    }
}

/// The only frame of a tunnel.
fn answered(name: &str, answer: Any) -> PppServerFrame {
    let closed = TunnelCost { cpu_ms: 250, bytes_in: 100, ..TunnelCost::default() };
    let payload = Some(ppp_server_frame::Payload::Ppp(answer));
    PppServerFrame { tunnel_id: name.to_owned(), payload, closed: Some(closed) }
}

/// The result that a worker answers an invoke with.
pub(crate) fn completed(work: &Any, answer: impl Fn(&InvokeRequest) -> Value) -> Any {
    let message = ClientMessage::decode(work.value.as_slice()).unwrap().payload;
    let Some(client_message::Payload::Invoke(invoke)) = message else { panic!("no invoke") };
    let end = Completed {
        output: json_of(&answer(&invoke)),
        request_id: invoke.request_id,
        ..Completed::default()
    };
    packed(&ServerMessage { payload: Some(server_message::Payload::Completed(end)) })
}

fn allocate(script: &Script, told: &Told, request: AllocateWorkerRequest) -> (usize, AllocateWorkerResponse) {
    let mut allocations = told.allocations.lock();
    allocations.push(request);
    let n = allocations.len() - 1;
    (n, (script.admit)(n))
}

fn close(told: &Told, request: CloseTunnelRequest) -> CloseTunnelResponse {
    told.closed.lock().push(request);
    let stats = figures(&[("cpu_ms", Kind::NumberValue(250.0)), ("bytes_in", Kind::NumberValue(100.0))]);
    CloseTunnelResponse { stats: Some(stats) }
}

struct Scripted {
    script: Script,
    told: Arc<Told>,
}

type Frames = Pin<Box<dyn Stream<Item = Result<PppServerFrame, Status>> + Send>>;
type Metrics = Pin<Box<dyn Stream<Item = Result<MetricsEvent, Status>> + Send>>;

#[tonic::async_trait]
impl RuntimeSupervisor for Scripted {
    type ProxyPppStream = Frames;
    type MetricsStreamStream = Metrics;

    async fn allocate_worker(
        &self,
        _: Request<AllocateWorkerRequest>,
    ) -> Result<Response<AllocateWorkerResponse>, Status> {
        Err(Status::unimplemented("a worker is requested on the stream"))
    }

    async fn proxy_ppp(
        &self,
        request: Request<Streaming<PppClientFrame>>,
    ) -> Result<Response<Frames>, Status> {
        let (out, answers) = mpsc::channel(256);
        let stream = SharedStream {
            script: self.script.clone(),
            told: self.told.clone(),
            out,
            tunnels: HashMap::new(),
        };
        tokio::spawn(stream.run(request.into_inner()));
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }

    async fn close_tunnel(
        &self,
        request: Request<CloseTunnelRequest>,
    ) -> Result<Response<CloseTunnelResponse>, Status> {
        Ok(Response::new(close(&self.told, request.into_inner())))
    }

    async fn cancel_allocation(
        &self,
        request: Request<CancelAllocationRequest>,
    ) -> Result<Response<CancelAllocationResponse>, Status> {
        self.told.cancelled.lock().push(request.into_inner());
        Ok(Response::new(CancelAllocationResponse {}))
    }

    async fn ensure_plugin(
        &self,
        request: Request<EnsurePluginRequest>,
    ) -> Result<Response<EnsurePluginResponse>, Status> {
        let request = request.into_inner();
        let plugin = request.plugin.clone().unwrap();
        self.told.ensured.lock().push(request);
        (self.script.ensure)(plugin).await?;
        let features = vec![LINES.to_owned()];
        Ok(Response::new(EnsurePluginResponse { features, ..EnsurePluginResponse::default() }))
    }

    async fn health(&self, _: Request<HealthRequest>) -> Result<Response<HealthResponse>, Status> {
        let status = health_response::Status::Ok.into();
        Ok(Response::new(HealthResponse { status, ..HealthResponse::default() }))
    }

    async fn metrics_stream(
        &self,
        request: Request<MetricsStreamRequest>,
    ) -> Result<Response<Metrics>, Status> {
        self.told.listeners.lock().push(request.into_inner());
        let events = self.told.events.lock().clone();
        if events.is_empty() {
            return Err(Status::unavailable("not yet"));
        }
        let told = futures::stream::iter(events.into_iter().map(Ok));
        Ok(Response::new(Box::pin(told.chain(futures::stream::pending()))))
    }

    async fn drain(&self, request: Request<DrainRequest>) -> Result<Response<DrainResponse>, Status> {
        self.told.drained.lock().push(request.into_inner());
        Ok(Response::new(DrainResponse {}))
    }

    async fn end_execution(
        &self,
        request: Request<EndExecutionRequest>,
    ) -> Result<Response<EndExecutionResponse>, Status> {
        self.told.to_end.lock().push(request.into_inner().request_id);
        (self.script.end)().await.map(|()| Response::new(EndExecutionResponse {}))
    }
}
