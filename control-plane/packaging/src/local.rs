//! A language runtime for one command: plugins are installed in a temporary directory and called as a gateway calls them.
//!
//! Owns the child process and its directory; dropping it removes both. There is no user: questions and delegations of a
//! plugin get scripted answers, or `unsupported`. What plugins store lasts as long as the runtime.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, anyhow, bail};
use asp_command::print;
use asp_mcp_client::lines;
use asp_mcp_client::listing::Lists;
use asp_proto::plugin::{self, InvokeRequest, Json, client_message, server_message};
use asp_proto::snapshot::runtime::Mode;
use asp_proto::supervisor::{AllocateWorkerRequest, Context as Caller, PluginRef, TunnelEvent, tunnel_event};
use asp_runtime_client::runtimes::Runtime;
use asp_runtime_client::tunnel::{Tunnel, TunnelContext, TunnelMessage, pack};
use prost_types::Any;
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::answers::Answers;
use super::languages::{Languages, runtime_binary};
use super::runtime::{self, ENV_ALLOW_PRIVATE};
use super::storage::MemoryStorage;
use super::{ConflictPolicy, InstalledUnit, MCP_STDIO, Unit, output, stage_files};

mod stdio;

/// Timeout for the start, which takes well under a second.
const START: Duration = Duration::from_secs(20);
const REQUEST: &str = "local";
const ENV_TMPDIR: &str = "TMPDIR";
const LOG_TAIL: usize = 20;
/// Pause after which a log that has not grown is complete, and maximum number of these pauses, for which an empty one is read.
const OUTPUT_PAUSE: Duration = Duration::from_millis(100);
const OUTPUT_READS: usize = 20;
/// Timeout for code to return its schemas, including the time for its own imports.
const DESCRIBE: Duration = Duration::from_secs(60);

/// Outcome of a call.
#[derive(Debug)]
pub enum PluginOutcome {
    Completed(Value),
    /// The tool ran and reported that it failed.
    Error(Value),
    Failed {
        code: String,
        message: String,
    },
}

/// A primitive and the installed unit that runs it.
#[derive(Clone, Debug)]
pub struct Callable {
    /// Id of the primitive.
    pub id: String,
    /// Name to call it by: a stdio server has its own names.
    name: String,
    /// Server that lists it.
    server: String,
    /// Maximum duration of a call.
    max_runtime: Option<Duration>,
    installed: InstalledUnit,
}

impl Callable {
    /// Whether this is the name of the primitive or of the package that runs it.
    pub fn is_named(&self, name: &str) -> bool {
        self.id == name || self.installed.id == name
    }
}

/// Input of a call.
#[derive(Debug)]
pub struct Request<'a> {
    pub arguments: &'a Value,
    pub answers: &'a Answers,
    /// Maximum duration, also limited by the spec.
    pub timeout: Duration,
}

/// A runtime with the plugins of one directory of primitives.
pub struct Local {
    pub callable: Vec<Callable>,
    /// Installed units.
    pub installed: Vec<InstalledUnit>,
    /// Ids of the primitives whose language is not available, each with the reason and the remedy.
    pub left_out: BTreeMap<String, String>,
    runtime: Arc<Runtime>,
    storage: MemoryStorage,
    log: PathBuf,
    child: Child,
    _directory: TempDir,
}

/// Prints which languages of the units are not available, and what is noteworthy about the others; returns the ids of the
/// primitives that are left out, each with the reason.
fn report_languages(units: &[Unit], languages: &Languages) -> BTreeMap<String, String> {
    let is_wanted = |language: &str| units.iter().any(|unit| unit.language == language);
    let mut left_out = BTreeMap::new();
    for (language, missing) in languages.absent.iter().filter(|(language, _)| is_wanted(language)) {
        let why = format!(
            "plugins in {language} are left out: set {missing} (a checkout's set-up wrote it down: \
             `source .tools/env`; else docs/install.md)"
        );
        print::error(&why);
        let of_it = units.iter().filter(|unit| unit.language == *language);
        let ids = of_it.flat_map(|unit| &unit.primitives).map(|primitive| primitive.id.clone());
        left_out.extend(ids.map(|id| (id, why.clone())));
    }
    for (_, note) in languages.notes.iter().filter(|(language, _)| is_wanted(language)) {
        print::error(note);
    }
    left_out
}

impl Local {
    /// Installs the units that have code, and starts a runtime for them.
    pub async fn start(units: &[Unit], languages: Languages) -> Result<Local> {
        let binary = std::env::var_os("ASP_RUNTIME_BIN").map(PathBuf::from).or_else(runtime_binary);
        let binary =
            binary.context("asp-runtime was not found next to asp; install it or set ASP_RUNTIME_BIN")?;
        let directory = tempfile::Builder::new().prefix("asp").tempdir().context("create a directory")?;
        let place = std::env::var_os(ENV_TMPDIR);
        let plugins = directory.path().join("plugins");
        std::fs::create_dir(&plugins).context("create a directory")?;
        let left_out = report_languages(units, &languages);
        let mut installed = Vec::new();
        for unit in units.iter().filter(|unit| unit.is_in(Some(&languages.present))) {
            let Some(folder) = &unit.folder else { continue };
            // The code runs as it is now; what specs pin is the package of a release.
            let unpinned = Unit { pins: BTreeSet::new(), ..unit.clone() };
            let staged = stage_files(&unpinned, folder, &plugins, ConflictPolicy::Keep);
            let placed = staged.and_then(|staged| staged.place());
            installed.push(placed.context("install the plugins")?);
        }
        let socket = directory.path().join("api.sock");
        let log = directory.path().join("runtime.log");
        let output = std::fs::File::create(&log).context("create the log")?;
        let asked = std::env::var(ENV_ALLOW_PRIVATE).ok();
        let allow_private = runtime::allow_private(asked.as_deref())
            .map_err(|fault| anyhow!("{ENV_ALLOW_PRIVATE} {fault}"))?;
        let mut command = Command::new(&binary);
        for name in &languages.unset {
            command.env_remove(name);
        }
        let child = command
            .args(runtime::arguments(&plugins, directory.path(), &socket, (allow_private, true)))
            .envs(languages.environment)
            .stdin(Stdio::null())
            .stdout(output.try_clone().context("share the log")?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {}", binary.display()))?;
        let mut local = Local {
            callable: callable(units, &installed),
            installed,
            left_out,
            runtime: Runtime::local(&socket)?,
            storage: MemoryStorage::of(units),
            log,
            child,
            _directory: directory,
        };
        match (local.wait(&socket).await, place) {
            (Ok(()), _) => Ok(local),
            (Err(error), None) => Err(error),
            // A long path, or one that the sandbox replaces.
            (Err(error), Some(place)) => Err(error.context(format!(
                "run the plugins in {}, which {ENV_TMPDIR} names; if that is the cause, name a short path such as /tmp",
                place.display()
            ))),
        }
    }

    async fn wait(&mut self, socket: &Path) -> Result<()> {
        tokio::select! {
            () = runtime::listens(socket) => Ok(()),
            status = self.child.wait() => {
                let status = status.context("wait for asp-runtime")?;
                bail!("asp-runtime ended with {status}:\n{}", self.log_tail())
            }
            () = tokio::time::sleep(START) => bail!("asp-runtime did not start:\n{}", self.log_tail()),
        }
    }

    /// Returns what the plugins have written to standard output and error so far, and how their processes were lost.
    pub fn plugin_output(&self) -> Vec<String> {
        output::lines(&std::fs::read_to_string(&self.log).unwrap_or_default())
    }

    /// Works like [`Local::plugin_output`] after a failure: a worker's end is reported before its last lines are read.
    pub async fn output_at_end(&self) -> Vec<String> {
        let mut lines = self.plugin_output();
        for _ in 0..OUTPUT_READS {
            tokio::time::sleep(OUTPUT_PAUSE).await;
            let before = std::mem::replace(&mut lines, self.plugin_output());
            if before == lines && !lines.is_empty() {
                break;
            }
        }
        lines
    }

    /// Returns the last lines of the runtime's log.
    fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines.get(lines.len().saturating_sub(LOG_TAIL)..).unwrap_or_default().join("\n")
    }

    /// Calls a plugin; `heard` receives every message of the worker before the end.
    pub async fn call(
        &mut self,
        plugin: &Callable,
        request: &Request<'_>,
        heard: &mut (dyn FnMut(&server_message::Payload) + Send),
    ) -> Result<PluginOutcome> {
        let timeout = plugin.max_runtime.map_or(request.timeout, |most| most.min(request.timeout));
        let begins = match plugin.installed.language == MCP_STDIO {
            true => stdio::tool_call(&plugin.name, request.arguments, timeout),
            false => client_message::Payload::Invoke(invoke(plugin, request.arguments, timeout)),
        };
        self.run(plugin, (begins, timeout), request.answers, heard).await
    }

    /// Asks the plugin's code for its schemas, without running its handler.
    pub async fn describe(&mut self, plugin: &Callable) -> Result<PluginOutcome> {
        let invoke = InvokeRequest { describe: true, ..invoke(plugin, &Value::Null, DESCRIBE) };
        let begins = client_message::Payload::Invoke(invoke);
        self.run(plugin, (begins, DESCRIBE), &Answers::default(), &mut |_| ()).await
    }

    async fn run(
        &mut self,
        plugin: &Callable,
        begins: (client_message::Payload, Duration),
        answers: &Answers,
        heard: &mut (dyn FnMut(&server_message::Payload) + Send),
    ) -> Result<PluginOutcome> {
        let called_as = (plugin.server.as_str(), plugin.id.as_str());
        outcome_of(&self.converse(&plugin.installed, called_as, begins, (answers, heard)).await?)
    }

    /// Runs a call and returns its last message; `heard` receives those before it.
    async fn converse(
        &mut self,
        plugin: &InstalledUnit,
        called_as: (&str, &str),
        (begins, timeout): (client_message::Payload, Duration),
        (answers, heard): (&Answers, &mut (dyn FnMut(&server_message::Payload) + Send)),
    ) -> Result<server_message::Payload> {
        let mut tunnel = self.open(plugin, called_as, timeout, pack(begins)).await?;
        loop {
            match tunnel.next().await? {
                TunnelMessage::Message(payload) => {
                    if is_end(&payload) {
                        return Ok(payload);
                    }
                    let shown = stdio::as_of_plugin(&payload);
                    heard(shown.as_ref().unwrap_or(&payload));
                    let answer = match payload {
                        server_message::Payload::StorageRequested(asked) => {
                            let answer = self.storage.answer(called_as.1, asked);
                            Some(client_message::Payload::StorageAnswer(answer))
                        }
                        payload => answer(&payload, answers)?,
                    };
                    if let Some(answer) = answer {
                        tunnel.send(answer).await?;
                    }
                }
                TunnelMessage::Event(event) => follow(&mut tunnel, &event).await?,
                TunnelMessage::End => bail!("the tunnel ended without a result"),
                _ => bail!("the runtime sent a frame that is not a message of a worker"),
            }
        }
    }

    /// Returns everything that a stdio server lists, run as one of `server`.
    pub async fn lists(&mut self, plugin: &InstalledUnit, server: &str) -> Result<Lists> {
        stdio::list(self, plugin, server).await
    }

    /// Opens a tunnel to a worker, which gets the work as soon as it is there.
    async fn open(
        &mut self,
        plugin: &InstalledUnit,
        (server, primitive): (&str, &str),
        timeout: Duration,
        work: Any,
    ) -> Result<Tunnel> {
        let request = AllocateWorkerRequest {
            plugin: Some(PluginRef {
                id: plugin.id.clone(),
                version: plugin.version.clone(),
                language: plugin.language.clone(),
                entrypoint: String::new(),
                artifact_sha256: plugin.artifact_sha256.clone(),
                called_as: format!("{server}/{primitive}"),
                primitive: (if plugin.language == MCP_STDIO { "" } else { primitive }).to_owned(),
                ..PluginRef::default()
            }),
            ctx: Some(Caller {
                tenant_id: "local".into(),
                primitive: primitive.to_owned(),
                ..Caller::default()
            }),
            soft_deadline: Some(timeout.try_into().context("the timeout is too long")?),
            lines: (plugin.language == MCP_STDIO).then(lines::protocol),
            ..AllocateWorkerRequest::default()
        };
        let account = TunnelContext::default().account("local");
        let init = pack(client_message::Payload::Init(plugin::InitRequest::default()));
        let opened = Tunnel::open(Arc::clone(&self.runtime), account, request, [init, work], None).await;
        Ok(opened.with_context(|| format!("the runtime does not run {}", plugin.id))?.0)
    }
}

fn callable(units: &[Unit], installed: &[InstalledUnit]) -> Vec<Callable> {
    let mut found = Vec::new();
    for installed in installed {
        let is_it = |unit: &&Unit| unit.id == installed.id && unit.version == installed.version;
        let of_it = units.iter().find(is_it);
        for (unit, primitive) in
            of_it.into_iter().flat_map(|unit| unit.primitives.iter().map(move |one| (unit, one)))
        {
            let name = match primitive.runtime.as_ref().and_then(|runtime| runtime.mode.as_ref()) {
                Some(Mode::McpStdio(stdio)) => stdio.tool.clone(),
                _ => primitive.id.clone(),
            };
            let seconds = u64::from(primitive.max_runtime_seconds);
            found.push(Callable {
                id: primitive.id.clone(),
                name,
                server: unit.server.clone(),
                max_runtime: (seconds > 0).then(|| Duration::from_secs(seconds)),
                installed: installed.clone(),
            });
        }
    }
    found
}

fn invoke(plugin: &Callable, arguments: &Value, timeout: Duration) -> InvokeRequest {
    InvokeRequest {
        primitive: plugin.name.clone(),
        version: plugin.installed.version.clone(),
        arguments: Some(Json { value: arguments.to_string().into_bytes() }),
        request_id: REQUEST.into(),
        deadline: Some((SystemTime::now() + timeout).into()),
        ..InvokeRequest::default()
    }
}

/// Whether the message ends its call.
fn is_end(payload: &server_message::Payload) -> bool {
    use server_message::Payload;
    matches!(payload, Payload::Completed(_) | Payload::Failed(_) | Payload::LineAnswer(_))
}

/// Returns the outcome of a call by its last message.
fn outcome_of(last: &server_message::Payload) -> Result<PluginOutcome> {
    let value = |json: &Option<Json>| -> Result<Value> {
        let bytes = json.as_ref().map(|json| json.value.as_slice()).unwrap_or(b"null");
        serde_json::from_slice(bytes).context("the plugin's output is not JSON")
    };
    Ok(match last {
        server_message::Payload::Completed(done) if done.is_error => {
            let said = if done.content.is_some() { &done.content } else { &done.output };
            PluginOutcome::Error(value(said)?)
        }
        server_message::Payload::Completed(done) => {
            let said = if done.output.is_some() { &done.output } else { &done.content };
            PluginOutcome::Completed(value(said)?)
        }
        server_message::Payload::Failed(failed) => {
            PluginOutcome::Failed { code: failed.code.clone(), message: failed.message.clone() }
        }
        server_message::Payload::LineAnswer(answer) => stdio::outcome(answer)?,
        _ => bail!("the call ended without a result"),
    })
}

/// Hands the work to a worker that is there now. Fails on an event after which no result can come.
async fn follow(tunnel: &mut Tunnel, event: &TunnelEvent) -> Result<()> {
    match event.r#type() {
        tunnel_event::Type::TunnelReady => Ok(tunnel.ready().await?),
        tunnel_event::Type::WorkerCrashed
        | tunnel_event::Type::RuntimeOverload
        | tunnel_event::Type::AdmissionRejected => {
            Err(anyhow!("{}: {}", event.r#type().as_str_name().to_lowercase(), event.message))
        }
        _ => Ok(()),
    }
}

/// Returns the scripted answer to a plugin's question; a checkpoint is acknowledged and discarded.
fn answer(payload: &server_message::Payload, answers: &Answers) -> Result<Option<client_message::Payload>> {
    Ok(match payload {
        server_message::Payload::Elicitation(asked) => {
            Some(client_message::Payload::UserInput(answers.to_user(asked)?))
        }
        server_message::Payload::Delegation(asked) => {
            Some(client_message::Payload::DelegationResult(answers.to_delegation(asked)))
        }
        server_message::Payload::Checkpoint(saved) => {
            Some(client_message::Payload::CheckpointAck(plugin::CheckpointAck {
                request_id: saved.request_id.clone(),
                seq: saved.seq,
                error: String::new(),
            }))
        }
        server_message::Payload::McpRequested(asked) if !asked.withdrawn => {
            Some(client_message::Payload::McpAnswer(lines::refusal(asked)))
        }
        _ => None,
    })
}
