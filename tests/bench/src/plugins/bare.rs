//! A worker without the runtime: the same command line, its socket and its token, no sandbox, and one Session.
//!
//! What a call costs here is the worker's part, and that of gRPC. One task sends and receives, so that no
//! hand-over between tasks is counted as the worker's.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use asp_proto::plugin::tool_plugin_client::ToolPluginClient;
use asp_proto::plugin::{ClientMessage, InitRequest, ServerMessage, client_message, server_message};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;
use tonic::{Request, Streaming};

use super::client::{PATIENCE, check, end, invoke};

/// The token of a worker that nobody else can reach: its directory is private.
const TOKEN: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const POLL: Duration = Duration::from_millis(1);
/// Most calls in flight, and the init.
const OUTGOING: usize = 64;

/// What a worker is started from.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    pub plugin: String,
    /// Command line, as the runtime's own worker has it.
    pub argv: Vec<String>,
    /// Directory of `plugin.json` and `package/`.
    pub installed: PathBuf,
}

/// A worker with an open Session.
pub(super) struct Bare {
    plugin: String,
    outgoing: mpsc::Sender<ClientMessage>,
    incoming: Streaming<ServerMessage>,
    // Killed when dropped.
    _process: Child,
    _directory: TempDir,
}

impl Bare {
    /// Starts a worker and opens its Session.
    pub(super) async fn start(recipe: &Recipe) -> Result<Bare> {
        timeout(PATIENCE, Bare::start_unguarded(recipe)).await.context("a worker does not start")?
    }

    async fn start_unguarded(recipe: &Recipe) -> Result<Bare> {
        let directory = tempfile::Builder::new().prefix("bw").tempdir()?;
        let socket = directory.path().join("s");
        let mut process = spawn(recipe, directory.path(), &socket).await?;
        while UnixStream::connect(&socket).await.is_err() {
            if let Some(status) = process.try_wait()? {
                let log = std::fs::read_to_string(directory.path().join("log")).unwrap_or_default();
                bail!("a worker ended with {status}: {log}");
            }
            sleep(POLL).await;
        }
        let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display()))?;
        let channel = endpoint.connect().await.context("connect to a worker")?;
        let (outgoing, messages) = mpsc::channel(OUTGOING);
        let init = client_message::Payload::Init(InitRequest::default());
        send(&outgoing, init).await?;
        let mut request = Request::new(ReceiverStream::new(messages));
        request.metadata_mut().insert("authorization", format!("Bearer {TOKEN}").parse()?);
        let session = ToolPluginClient::new(channel).session(request).await.context("open a session")?;
        let mut incoming = session.into_inner();
        let greeted = incoming.message().await.context("read a session")?.and_then(|it| it.payload);
        match greeted {
            Some(server_message::Payload::Init(init)) if init.ok => {}
            other => bail!("a worker answers init with {other:?}"),
        }
        let plugin = recipe.plugin.clone();
        Ok(Bare { plugin, outgoing, incoming, _process: process, _directory: directory })
    }

    /// `calls` of them with always `in_flight` on their way; the latency of each.
    pub(super) async fn drive(&mut self, prefix: &str, calls: u32, in_flight: u32) -> Result<Vec<Duration>> {
        let mut next = 0;
        let mut latencies = Vec::with_capacity(calls as usize);
        let mut open: HashMap<String, Instant> = HashMap::new();
        while latencies.len() < calls as usize {
            while next < calls && open.len() < in_flight as usize {
                let request_id = format!("{prefix}-{next}");
                let invoke = invoke(&self.plugin, &request_id);
                open.insert(request_id, Instant::now());
                send(&self.outgoing, invoke).await?;
                next += 1;
            }
            let message = timeout(PATIENCE, self.incoming.message()).await.context("a worker hangs")?;
            let message = message.context("read a session")?.context("the session ended")?;
            let ended = message.payload.map(end).transpose()?.flatten();
            let Some((request_id, output)) = ended else { continue };
            let began = open.remove(&request_id).with_context(|| format!("nobody asked {request_id}"))?;
            latencies.push(began.elapsed());
            check(&request_id, &output)?;
        }
        Ok(latencies)
    }
}

async fn send(outgoing: &mpsc::Sender<ClientMessage>, payload: client_message::Payload) -> Result<()> {
    let message = ClientMessage { payload: Some(payload) };
    outgoing.send(message).await.map_err(|_| anyhow!("the session is closed"))
}

/// From the start of a new worker's process to its first answer.
pub(super) async fn first_answer(recipe: &Recipe, request_id: &str) -> Result<Duration> {
    let began = Instant::now();
    let mut worker = Bare::start(recipe).await?;
    worker.drive(request_id, 1, 1).await?;
    Ok(began.elapsed())
}

async fn spawn(recipe: &Recipe, directory: &Path, socket: &Path) -> Result<Child> {
    let work = directory.join("work");
    std::fs::create_dir(&work)?;
    let log = std::fs::File::create(directory.join("log"))?;
    let (program, arguments) = recipe.argv.split_first().context("a command line")?;
    let mut process = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("ASP_WORKER_SOCKET", socket)
        .env("ASP_PLUGIN_MANIFEST", recipe.installed.join("plugin.json"))
        .env("ASP_PLUGIN_CODE", recipe.installed.join("package"))
        .env("ASP_WORK_DIR", &work)
        .env("HOME", &work)
        .env("TMPDIR", &work)
        .env("ASP_WORKER_ID", "bare")
        .envs([("PATH", "/usr/bin:/bin"), ("LANG", "C.UTF-8"), ("TZ", "UTC")])
        .current_dir(&work)
        .stdin(Stdio::piped())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("start {program}"))?;
    let mut input = process.stdin.take().context("a worker has an input")?;
    input.write_all(format!("{TOKEN}\n").as_bytes()).await.context("hand a worker its token")?;
    Ok(process)
}
