//! A worker that follows its arguments, well or badly: the runtime's tests use it as an interpreter, and benchmarks as
//! the bare worker to compare with.
//!
//! It uses the environment of runtime/README.md and ignores its command line. `{"mode": "..."}` in an invoke's
//! arguments selects its behaviour in a call; the plugin's entrypoint selects that at the start.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::exit,
    reason = "a test worker, bad on purpose"
)]

#[path = "ppp_worker/bad.rs"]
mod bad;
#[path = "ppp_worker/raw.rs"]
mod raw;
#[path = "ppp_worker/updates.rs"]
mod updates;

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use asp_proto::plugin::cancel_request::Mode;
use asp_proto::plugin::client_message::Payload as In;
use asp_proto::plugin::prompt_plugin_server::{PromptPlugin, PromptPluginServer};
use asp_proto::plugin::resource_plugin_server::{ResourcePlugin, ResourcePluginServer};
use asp_proto::plugin::server_message::Payload as Out;
use asp_proto::plugin::tool_plugin_server::{ToolPlugin, ToolPluginServer};
use asp_proto::plugin::{
    ArtifactData, ArtifactEmitted, Checkpoint, ClientMessage, Completed, ContentChunk, ElicitationRequested,
    Failed, GetPromptRequest, GetPromptResponse, InitResponse, InvokeRequest, Json, ListPromptsRequest,
    ListPromptsResponse, ListResourcesRequest, ListResourcesResponse, LogLine, Pong, Progress, PromptMessage,
    ReadResourceRequest, ResourceUpdated, ServerMessage, SubscribeRequest, Vitals, content_chunk,
};
use asp_proto::supervisor::HealthRequest;
use asp_proto::supervisor::runtime_supervisor_client::RuntimeSupervisorClient;
use futures::{Stream, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::{Request, Response, Status, Streaming};

/// Window of the session stream of a worker that closes it: enough for its first call.
const DEAF_WINDOW: u32 = 1024;
/// Set by a call after which nothing more is to be read from the supervisor.
static DEAF: AtomicBool = AtomicBool::new(false);

type Answers = Arc<Mutex<HashMap<String, mpsc::Sender<In>>>>;

#[derive(Clone)]
struct Worker {
    token: String,
    ended: mpsc::Sender<()>,
    /// Selects the answer of Health.
    entrypoint: String,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("--call-api") {
        let executor = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        print!("{}", executor.block_on(call_api(&arguments.next().unwrap_or_default())));
        return Ok(());
    }
    let mut token = String::new();
    std::io::stdin().lock().read_line(&mut token)?;
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    executor.block_on(serve(token.trim().to_owned()))
}

async fn serve(token: String) -> Result<(), Box<dyn std::error::Error>> {
    let manifest = std::fs::read_to_string(std::env::var("ASP_PLUGIN_MANIFEST")?)?;
    let manifest: Value = serde_json::from_str(&manifest)?;
    let entrypoint = manifest["entrypoint"].as_str().unwrap_or_default().to_owned();
    match entrypoint.as_str() {
        "broken.py" => {
            eprintln!("cannot load the plugin");
            std::process::exit(78);
        }
        "silent.py" => std::future::pending::<()>().await,
        "hoarder.py" => bad::hoard(std::path::Path::new(&std::env::var("ASP_WORK_DIR")?)),
        _ => {}
    }
    let listener = UnixListener::bind(std::env::var("ASP_WORKER_SOCKET")?)?;
    if entrypoint == "garbage.py" {
        let (mut stream, _) = listener.accept().await?;
        // An HTTP/2 frame that announces 16 MiB, followed by arbitrary bytes.
        stream.write_all(&[0xff; 4096]).await?;
        std::future::pending::<()>().await;
    }
    let window = (entrypoint == "deaf.py").then_some(DEAF_WINDOW);
    let incoming = UnixListenerStream::new(listener).inspect(|stream| stream.iter().for_each(raw::keep));
    let (ended, mut end) = mpsc::channel(1);
    let worker = Worker { token, ended, entrypoint };
    tonic::transport::Server::builder()
        .initial_stream_window_size(window)
        .add_service(ToolPluginServer::new(worker.clone()))
        .add_service(ResourcePluginServer::new(worker.clone()))
        .add_service(PromptPluginServer::new(worker))
        .serve_with_incoming_shutdown(incoming, async move {
            end.recv().await;
        })
        .await?;
    Ok(())
}

impl Worker {
    fn check<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let expected = format!("Bearer {}", self.token);
        match request.metadata().get("authorization").map(|value| value.as_bytes()) {
            Some(given) if given == expected.as_bytes() => Ok(()),
            _ => Err(Status::unauthenticated("wrong token")),
        }
    }
}

#[tonic::async_trait]
impl ToolPlugin for Worker {
    type SessionStream = ReceiverStream<Result<ServerMessage, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<ClientMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        self.check(&request)?;
        let mut inbound = request.into_inner();
        let (out, stream) = mpsc::channel(64);
        let ended = self.ended.clone();
        tokio::spawn(async move {
            let calls: Answers = Arc::default();
            while let Ok(Some(message)) = inbound.message().await {
                let Some(payload) = message.payload else { continue };
                take(payload, &out, &calls).await;
                if DEAF.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
            }
            let _ = ended.send(()).await;
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn health(&self, request: Request<()>) -> Result<Response<InitResponse>, Status> {
        self.check(&request)?;
        let told = |figure| {
            Some(Vitals {
                heap_used_bytes: Some(figure),
                heap_limit_bytes: Some(figure),
                gc_count: Some(figure),
                gc_micros: Some(figure),
                heap_blocks: None,
            })
        };
        let vitals = match self.entrypoint.as_str() {
            "mute.py" => std::future::pending().await,
            "liar.py" => told(u64::MAX),
            _ => told(1000),
        };
        Ok(Response::new(InitResponse { ok: true, vitals, ..InitResponse::default() }))
    }
}

type Sender = mpsc::Sender<Result<ServerMessage, Status>>;

/// Number of messages of the session, both ways, without the heartbeat's.
static HEARD: AtomicU64 = AtomicU64::new(0);
static SAID: AtomicU64 = AtomicU64::new(0);

async fn say(out: &Sender, payload: Out) {
    SAID.fetch_add(u64::from(!matches!(payload, Out::Pong(_))), Ordering::Relaxed);
    let _ = out.send(Ok(ServerMessage { payload: Some(payload) })).await;
}

async fn take(payload: In, out: &Sender, calls: &Answers) {
    HEARD.fetch_add(u64::from(!matches!(payload, In::Ping(_))), Ordering::Relaxed);
    let id = match &payload {
        In::Init(_) => {
            let manifest = std::env::var("ASP_PLUGIN_MANIFEST").map(std::fs::read_to_string);
            let saves = manifest.is_ok_and(|text| text.is_ok_and(|text| text.contains("saves.py")));
            let boast = ("boast", "x".repeat(100_000));
            let caps = [("shim", "ppp_worker/1".to_owned()), ("checkpoint", saves.to_string()), boast];
            let caps = caps.map(|(name, value)| (name.to_owned(), value)).into();
            return say(out, Out::Init(InitResponse { ok: true, caps, ..InitResponse::default() })).await;
        }
        In::Ping(ping) => return say(out, Out::Pong(Pong { nonce: ping.nonce.clone() })).await,
        In::Invoke(invoke) => {
            let (answers, inbox) = mpsc::channel(16);
            calls.lock().unwrap().insert(invoke.request_id.clone(), answers);
            let out = out.clone();
            let calls = Arc::clone(calls);
            let invoke = invoke.clone();
            tokio::spawn(async move {
                run(&invoke, &out, inbox).await;
                calls.lock().unwrap().remove(&invoke.request_id);
            });
            return;
        }
        In::Cancel(message) => message.request_id.clone(),
        In::UserInput(message) => message.request_id.clone(),
        In::DelegationResult(message) => message.request_id.clone(),
        In::McpAnswer(message) => message.request_id.clone(),
        In::LineRequest(message) => message.request_id.clone(),
        In::StorageAnswer(message) => message.request_id.clone(),
        In::CheckpointAck(message) => message.request_id.clone(),
    };
    let call = calls.lock().unwrap().get(&id).cloned();
    if let Some(call) = call {
        let _ = call.send(payload).await;
    }
}

fn completed(id: &str, output: &Value) -> Out {
    Out::Completed(Completed {
        request_id: id.to_owned(),
        output: Some(Json { value: output.to_string().into_bytes() }),
        ..Completed::default()
    })
}

fn failed(id: &str, code: &str) -> Out {
    Out::Failed(Failed { request_id: id.to_owned(), code: code.to_owned(), ..Failed::default() })
}

fn progress(id: &str, percent: f64) -> Out {
    Out::Progress(Progress { request_id: id.to_owned(), percent, ..Progress::default() })
}

async fn run(invoke: &InvokeRequest, out: &Sender, mut inbox: mpsc::Receiver<In>) {
    let id = invoke.request_id.as_str();
    let bytes = invoke.arguments.as_ref().map(|json| json.value.as_slice()).unwrap_or_default();
    let arguments: Value = serde_json::from_slice(bytes).unwrap_or(Value::Null);
    match arguments["mode"].as_str().unwrap_or("echo") {
        "echo" => say(out, completed(id, &arguments)).await,
        "slow" => slow(id, out, &mut inbox, arguments["ms"].as_u64().unwrap_or(1000)).await,
        "ignore" => {
            say(out, progress(id, 1.0)).await;
            std::future::pending::<()>().await;
        }
        "count" => {
            let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            say(out, completed(id, &json!({"heard": count(&HEARD), "said": count(&SAID)}))).await;
        }
        "ask" => ask(id, out, &mut inbox, "age").await,
        "undeclared" => ask(id, out, &mut inbox, "nobody_declared_this").await,
        "artifact" => artifact(id, out, 0).await,
        "gap" => artifact(id, out, 1).await,
        "checkpoint" => checkpoint(id, out, &mut inbox, &arguments).await,
        "yield" => give_way(id, out, &mut inbox).await,
        "cancels" => cancels(id, out, &mut inbox).await,
        "leave" => leave(id, out, &mut inbox, &arguments).await,
        "environment" => {
            let variables: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
            say(out, completed(id, &json!({"variables": variables, "pid": std::process::id()}))).await;
        }
        "egress" => {
            let answer = egress(arguments["request"].as_str().unwrap_or_default()).await;
            say(out, completed(id, &json!({ "answer": answer.unwrap_or_else(|error| error.to_string()) })))
                .await;
        }
        "call_api" => {
            let answer = call_api(arguments["path"].as_str().unwrap_or_default()).await;
            say(out, completed(id, &json!({ "answer": answer }))).await;
        }
        "log" => {
            println!("plain line\x1b[31mred\nsecond line");
            let _ = std::io::stdout().flush();
            say(out, completed(id, &Value::Null)).await;
        }
        "tiny_lines" => bad::tiny_lines(id, out, arguments["ms"].as_u64().unwrap_or(1000)).await,
        "log_messages" => {
            for _ in 0..arguments["count"].as_u64().unwrap_or(1) {
                let line = LogLine { request_id: id.to_owned(), message: "x".into(), ..LogLine::default() };
                say(out, Out::Log(line)).await;
            }
            say(out, completed(id, &Value::Null)).await;
        }
        "logflood" => {
            let line = vec![b'x'; 1 << 20];
            for _ in 0..64 {
                let _ = std::io::stdout().write_all(&line);
            }
            say(out, completed(id, &Value::Null)).await;
        }
        other => bad::misbehave(other, id, out, &mut inbox, &arguments).await,
    }
}

/// Returns the answer of a runtime's API, on the socket at `path`, to a request.
async fn call_api(path: &str) -> String {
    let asked = async {
        let channel = tonic::transport::Endpoint::try_from(format!("unix://{path}"))?.connect().await?;
        RuntimeSupervisorClient::new(channel).health(HealthRequest {}).await?;
        Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    };
    match asked.await {
        Ok(()) => "answered".to_owned(),
        Err(error) => format!("refused: {error:?}"),
    }
}

/// Returns the answer of the environment's proxy to a request.
async fn egress(request: &str) -> std::io::Result<String> {
    let proxy = std::env::var("HTTP_PROXY").map_err(std::io::Error::other)?;
    let mut stream = tokio::net::TcpStream::connect(proxy.trim_start_matches("http://")).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

async fn slow(id: &str, out: &Sender, inbox: &mut mpsc::Receiver<In>, milliseconds: u64) {
    say(out, progress(id, 1.0)).await;
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(milliseconds)) => {
            say(out, completed(id, &json!({"slept": milliseconds}))).await;
        }
        () = cancelled(inbox) => say(out, failed(id, "CANCELLED")).await,
    }
}

/// Sends the given number of checkpoints of the given size, waiting for their acknowledgements or not.
async fn checkpoint(id: &str, out: &Sender, inbox: &mut mpsc::Receiver<In>, arguments: &Value) {
    let number = |name: &str, otherwise: u64| arguments[name].as_u64().unwrap_or(otherwise);
    let capsule = vec![0; usize::try_from(number("bytes", 8)).unwrap_or(8)];
    for seq in 1..=number("count", 1) {
        let capsule = capsule.clone();
        say(out, Out::Checkpoint(Checkpoint { request_id: id.to_owned(), seq, capsule })).await;
        if arguments["wait"] == true {
            inbox.recv().await;
        }
    }
    say(out, completed(id, &Value::Null)).await;
}

/// Collects cancels up to a soft one, and completes with their modes.
async fn cancels(id: &str, out: &Sender, inbox: &mut mpsc::Receiver<In>) {
    say(out, progress(id, 1.0)).await;
    let mut modes = Vec::new();
    while !modes.contains(&"SOFT") {
        let Some(In::Cancel(cancel)) = inbox.recv().await else { return };
        modes.push(cancel.mode().as_str_name());
    }
    say(out, completed(id, &json!({ "modes": modes }))).await;
}

/// Runs until it is asked to yield or to end, and does so.
async fn give_way(id: &str, out: &Sender, inbox: &mut mpsc::Receiver<In>) {
    say(out, progress(id, 1.0)).await;
    let Some(In::Cancel(cancel)) = inbox.recv().await else { return };
    let yielded = cancel.mode() == Mode::Preempt;
    let request_id = id.to_owned();
    let code = "CANCELLED".to_owned();
    say(out, Out::Failed(Failed { request_id, code, yielded, ..Failed::default() })).await;
}

/// Starts something, and ends, by itself or when it is cancelled.
async fn leave(id: &str, out: &Sender, inbox: &mut mpsc::Receiver<In>, arguments: &Value) {
    match arguments["what"].as_str().unwrap_or_default() {
        "process" => drop(std::process::Command::new("/bin/sleep").arg("600").spawn()),
        "thread" => drop(std::thread::spawn(|| {
            loop {
                std::hint::spin_loop();
            }
        })),
        // Not residual work: a thread that waits, and a process that ends.
        _ => {
            drop(std::thread::spawn(std::thread::park));
            drop(std::process::Command::new("/bin/sleep").arg("0.3").spawn());
        }
    }
    say(out, progress(id, 1.0)).await;
    if arguments["until_cancelled"] == true {
        cancelled(inbox).await;
        return say(out, failed(id, "CANCELLED")).await;
    }
    say(out, completed(id, &json!({"pid": std::process::id()}))).await;
}

async fn cancelled(inbox: &mut mpsc::Receiver<In>) {
    loop {
        match inbox.recv().await {
            Some(In::Cancel(cancel)) if cancel.mode() != Mode::Preempt => return,
            Some(_) => {}
            None => std::future::pending().await,
        }
    }
}

async fn ask(id: &str, out: &Sender, inbox: &mut mpsc::Receiver<In>, elicitation_id: &str) {
    let request_id = id.to_owned();
    let elicitation_id = elicitation_id.to_owned();
    let asked = ElicitationRequested { request_id, elicitation_id, ..ElicitationRequested::default() };
    say(out, Out::Elicitation(asked)).await;
    match inbox.recv().await {
        Some(In::UserInput(answer)) => {
            let fields = answer.fields.map(|json| json.value).unwrap_or_default();
            let fields: Value = serde_json::from_slice(&fields).unwrap_or(Value::Null);
            say(out, completed(id, &fields)).await;
        }
        _ => say(out, failed(id, "CANCELLED")).await,
    }
}

async fn artifact(id: &str, out: &Sender, gap: u64) {
    let uri = "report://task/data".to_owned();
    for piece in 0..3 {
        let offset = piece * (1000 + gap);
        let request_id = id.to_owned();
        let uri = uri.clone();
        let data = vec![7; 1000];
        say(out, Out::ArtifactData(ArtifactData { request_id, uri, offset, data })).await;
    }
    let request_id = id.to_owned();
    let emitted = ArtifactEmitted { request_id, uri, size: 3000, ..ArtifactEmitted::default() };
    say(out, Out::Artifact(emitted)).await;
    say(out, completed(id, &Value::Null)).await;
}

type Chunks<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl ResourcePlugin for Worker {
    type ReadStream = Chunks<ContentChunk>;
    type SubscribeStream = Chunks<ResourceUpdated>;

    async fn list(
        &self,
        request: Request<ListResourcesRequest>,
    ) -> Result<Response<ListResourcesResponse>, Status> {
        self.check(&request)?;
        Ok(Response::new(ListResourcesResponse::default()))
    }

    async fn read(
        &self,
        request: Request<ReadResourceRequest>,
    ) -> Result<Response<Self::ReadStream>, Status> {
        self.check(&request)?;
        let uri = request.into_inner().uri;
        match uri.as_str() {
            "test://missing" => return Err(Status::not_found("no such thing")),
            "test://slow" => {
                let (keep, never) = oneshot::channel::<()>();
                let pending = futures::stream::once(async move {
                    let _ = never.await;
                    drop(keep);
                    Err(Status::internal("never"))
                });
                return Ok(Response::new(Box::pin(pending)));
            }
            _ => {}
        }
        let (count, size) = match uri.as_str() {
            "test://one" => (1, 0),
            "test://large" => (14, 1 << 20),
            _ => (3, 0),
        };
        let chunks = (0..count).map(move |number| {
            let data = Some(content_chunk::Data::Text(format!("part {number}{}", "x".repeat(size))));
            Ok(ContentChunk {
                uri: uri.clone(),
                mime_type: "text/plain".into(),
                data,
                ..ContentChunk::default()
            })
        });
        Ok(Response::new(Box::pin(futures::stream::iter(chunks.collect::<Vec<_>>()))))
    }

    async fn subscribe(
        &self,
        request: Request<SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        self.check(&request)?;
        updates::of(&request.into_inner().uri).map(Response::new)
    }
}

#[tonic::async_trait]
impl PromptPlugin for Worker {
    async fn list(&self, _: Request<ListPromptsRequest>) -> Result<Response<ListPromptsResponse>, Status> {
        Ok(Response::new(ListPromptsResponse::default()))
    }

    async fn get(&self, request: Request<GetPromptRequest>) -> Result<Response<GetPromptResponse>, Status> {
        self.check(&request)?;
        let content = Some(Json { value: json!({"type": "text", "text": "hi"}).to_string().into_bytes() });
        let messages = vec![PromptMessage { role: "user".into(), content }];
        let description = request.into_inner().name;
        Ok(Response::new(GetPromptResponse { description, messages, ..GetPromptResponse::default() }))
    }
}
