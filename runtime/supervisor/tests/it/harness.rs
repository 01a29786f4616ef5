//! A running `asp-runtime` and a gateway's view of it.

mod tunnel;

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use asp_proto::envelope::packed;
use asp_proto::supervisor::admission::Status as Admitted;
use asp_proto::supervisor::{
    AllocateWorkerRequest, AllocateWorkerResponse, Context, HealthRequest, PluginRef,
};
use asp_runtime_client::multiplexer::{Client, StreamEvent, TunnelStream};
use asp_runtime_client::runtimes::{Runtime, metrics};
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::lines;
use tunnel::account;
pub(super) use tunnel::{Said, Tunnel, crash, invocation, output};

/// Guard against hanging, far above what anything here takes.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Stack {
    pub(super) client: Client,
    runtime: Arc<Runtime>,
    /// Allocated tunnels that [`Stack::open`] has not taken, by their handles.
    allocated: Mutex<HashMap<String, TunnelStream>>,
    pub(super) log: Arc<Mutex<Vec<String>>>,
    pub(super) child: Child,
    pub(super) state: PathBuf,
    pub(super) socket: PathBuf,
    dir: tempfile::TempDir,
}

/// Returns the directory of the binaries, which is above this one's, so that all of them can be copied to where an
/// account runs them.
pub(super) fn target() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_path_buf()
}

pub(super) fn runtime() -> Command {
    Command::new(target().join("asp-runtime"))
}

/// Returns the program that stands in for an interpreter.
pub(super) fn interpreter() -> PathBuf {
    target().join("examples/ppp_worker")
}

/// Starts a runtime with `plugins` installed: (id, differences from the manifest below).
pub(super) async fn start(plugins: &[(&str, Value)]) -> Stack {
    start_with(plugins, &[]).await
}

pub(super) async fn start_with(plugins: &[(&str, Value)], flags: &[&str]) -> Stack {
    let dir = tempfile::tempdir().unwrap();
    for (id, differs) in plugins {
        install(&dir.path().join("plugins"), id, "1.0.0", differs);
    }
    stand_in(dir, flags, runtime()).await
}

async fn stand_in(dir: tempfile::TempDir, flags: &[&str], mut command: Command) -> Stack {
    let interpreter = interpreter();
    let mut all = vec!["--python", interpreter.to_str().unwrap()];
    all.extend(flags);
    // The stand-in is the only interpreter here, whatever is installed.
    for name in ["NODE", "NODE_SHIM", "JAVA", "JAVA_SHIM"] {
        command.env_remove(format!("ASP_PLUGIN_{name}"));
    }
    launch(dir, command, &all).await
}

/// Starts a runtime with the shims that scripts/setup installed: (id, manifest, code).
pub(super) async fn start_shims(plugins: &[(&str, Value, &str)]) -> Stack {
    let dir = tempfile::tempdir().unwrap();
    for (id, differs, code) in plugins {
        let installed = dir.path().join("plugins");
        install(&installed, id, "1.0.0", differs);
        let entrypoint = differs["entrypoint"].as_str().unwrap();
        std::fs::write(installed.join(id).join("1.0.0/package").join(entrypoint), code).unwrap();
    }
    for name in ["PYTHON", "NODE", "NODE_SHIM", "JAVA", "JAVA_SHIM"] {
        let name = format!("ASP_PLUGIN_{name}");
        assert!(
            std::env::var_os(&name).is_some(),
            "{name} is not set: source .tools/env, which scripts/setup made"
        );
    }
    launch(dir, runtime(), &[]).await
}

/// Compiles the class that [`start_shims`] wrote as the entrypoint of plugin `id`.
pub(super) fn compile_java(stack: &Stack, id: &str, class: &str) {
    let package = stack.plugins().join(id).join("1.0.0/package");
    let source = package.join(format!("{class}.java"));
    std::fs::rename(package.join(class), &source).unwrap();
    let shim = PathBuf::from(std::env::var_os("ASP_PLUGIN_JAVA_SHIM").unwrap());
    let mut javac = Command::new("javac");
    javac.arg("-cp").arg(shim.join("asp-plugin.jar")).arg("-d").args([&package, &source]);
    assert!(javac.status().expect("javac is on the PATH").success());
}

/// Returns a range of users that no other runtime's workers have: the limit on processes counts a user's processes
/// everywhere, so a fork bomb of one test would affect another.
fn uid_base() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let own = NEXT.fetch_add(1, Ordering::Relaxed) % 128;
    1_000_000 + (std::process::id() % 10_000) * 10_000 + own * 64
}

pub(super) async fn launch(dir: tempfile::TempDir, mut command: Command, flags: &[&str]) -> Stack {
    let launcher = target().join("worker-init");
    assert!(launcher.is_file(), "cargo build -p asp-launcher makes {}", launcher.display());
    let installed = dir.path().join("plugins");
    let state = dir.path().join("state");
    let socket = dir.path().join("runtime.sock");
    command.arg("--plugins").arg(&installed).arg("--state").arg(&state).arg("--socket").arg(&socket);
    command.args(flags).env("ASP_LOG", "debug,h2=info,hyper=info,tower=info");
    command.env("ASP_RUNTIME_UID_BASE", uid_base().to_string());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let log = Arc::new(Mutex::new(Vec::new()));
    let lines = Arc::clone(&log);
    let stderr = child.stderr.take().unwrap();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            lines.lock().unwrap().push(line);
        }
    });
    let began = Instant::now();
    while UnixStream::connect(&socket).await.is_err() {
        assert!(began.elapsed() < PATIENCE, "{:#?}", log.lock().unwrap());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let runtime = Runtime::local(&socket).unwrap();
    Stack {
        client: runtime.any_client(),
        runtime,
        allocated: Mutex::default(),
        log,
        child,
        state,
        socket,
        dir,
    }
}

pub(super) fn install(installed: &Path, id: &str, version: &str, differs: &Value) {
    let mut manifest = json!({
        "format": 1, "id": id, "version": version, "kind": "tool", "mode": "plugin", "language": "python",
        "entrypoint": "main.py", "elicitations": ["age"],
        "artifactSha256": "a".repeat(64),
        "limits": {"memoryBytes": 134_217_728, "pids": 32, "maxRuntimeSeconds": 60},
        "pool": {"mode": "warm", "min": 0, "max": 2, "concurrency": 4, "idleSeconds": 300},
    });
    merge(&mut manifest, differs);
    let home = installed.join(id).join(version);
    std::fs::create_dir_all(home.join("package")).unwrap();
    std::fs::write(home.join("plugin.json"), manifest.to_string()).unwrap();
    std::fs::write(home.join("package").join(manifest["entrypoint"].as_str().unwrap()), "").unwrap();
}

pub(super) fn merge(into: &mut Value, from: &Value) {
    for (key, value) in from.as_object().into_iter().flatten() {
        match &mut into[key] {
            Value::Object(inner) if value.is_object() => {
                let mut inner_value = Value::Object(std::mem::take(inner));
                merge(&mut inner_value, value);
                into[key] = inner_value;
            }
            slot => *slot = value.clone(),
        }
    }
}

impl Stack {
    pub(super) fn plugins(&self) -> PathBuf {
        self.dir.path().join("plugins")
    }

    /// Requests a worker. [`Stack::open`] takes the tunnel of an answer with a handle.
    pub(super) async fn allocate(&self, request: AllocateWorkerRequest) -> AllocateWorkerResponse {
        let mut stream = self.runtime.multiplexer().await.unwrap().stream(account()).unwrap();
        stream.send(packed(&request)).await.unwrap();
        let answered = timeout(PATIENCE, stream.next()).await.expect("the request hangs");
        let StreamEvent::Allocated(answer) = answered else { panic!("no answer: {answered:?}") };
        if let Some(handle) = &answer.handle {
            stream.rename(&handle.tunnel_id);
            self.allocated.lock().unwrap().insert(handle.tunnel_id.clone(), stream);
        }
        answer
    }

    /// Allocates and opens a tunnel.
    pub(super) async fn tunnel(&self, id: &str) -> Tunnel {
        self.tunnel_for(wanted(id, "tenant")).await
    }

    pub(super) async fn tunnel_for(&self, request: AllocateWorkerRequest) -> Tunnel {
        let response = self.allocate(request).await;
        let handle = response.handle.unwrap_or_else(|| panic!("refused: {:?}", response.admission));
        self.open(&handle.tunnel_id)
    }

    /// Returns the tunnel of an allocation.
    pub(super) fn open(&self, tunnel_id: &str) -> Tunnel {
        let stream = self.allocated.lock().unwrap().remove(tunnel_id).expect("it was allocated");
        Tunnel { id: tunnel_id.into(), stream, end: None }
    }

    /// Makes one call and returns everything that it sent.
    pub(super) async fn call(&self, id: &str, request_id: &str, arguments: &Value) -> Vec<Said> {
        let mut tunnel = self.tunnel(id).await;
        tunnel.invoke(request_id, arguments).await;
        tunnel.rest().await
    }

    /// Like [`Stack::call`], with arguments as text, for values that a `Value` cannot hold.
    pub(super) async fn call_text(&self, id: &str, request_id: &str, arguments: &str) -> Vec<Said> {
        let mut tunnel = self.tunnel(id).await;
        tunnel.invoke_text(request_id, arguments, None).await;
        tunnel.rest().await
    }

    pub(super) async fn health(&self) -> Value {
        let health = self.client.clone().health(HealthRequest {}).await.unwrap().into_inner();
        metrics::json(health.runtimes.unwrap())
    }

    pub(super) async fn figure(&self, plugin: &str, name: &str) -> u64 {
        self.health().await["plugins"][plugin][name].as_f64().unwrap_or(0.0) as u64
    }

    /// Returns the number of workers on the machine: each has a directory under `state`.
    pub(super) fn homes(&self) -> usize {
        std::fs::read_dir(self.state.join("w")).map(Iterator::count).unwrap_or(0)
    }

    /// Waits for a line in the runtime's log, which is read in parallel to the tests.
    pub(super) async fn log_line(&self, text: &str) -> String {
        eventually(text, || async { !self.logged(text).is_empty() }).await;
        self.logged(text).pop().unwrap()
    }

    pub(super) fn logged(&self, text: &str) -> Vec<String> {
        self.log.lock().unwrap().iter().filter(|line| line.contains(text)).cloned().collect()
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            for line in self.log.lock().unwrap().iter().rev().take(60).rev() {
                eprintln!("{line}");
            }
        }
    }
}

/// Builds a request for a worker of version 1.0.0.
pub(super) fn wanted(id: &str, tenant: &str) -> AllocateWorkerRequest {
    AllocateWorkerRequest {
        plugin: Some(reference(id)),
        ctx: Some(Context { tenant_id: tenant.into(), ..Context::default() }),
        lines: Some(lines::protocol()),
        ..AllocateWorkerRequest::default()
    }
}

pub(super) fn reference(id: &str) -> PluginRef {
    PluginRef {
        id: id.into(),
        version: "1.0.0".into(),
        called_as: format!("tests/{id}"),
        ..PluginRef::default()
    }
}

pub(super) fn reason(response: &AllocateWorkerResponse) -> String {
    response.admission.as_ref().unwrap().reason.clone()
}

pub(super) fn admitted(response: &AllocateWorkerResponse) -> Admitted {
    response.admission.as_ref().unwrap().status()
}

/// Waits until `check` holds.
pub(super) async fn eventually<F: Future<Output = bool>>(what: &str, mut check: impl FnMut() -> F) {
    let began = Instant::now();
    while !check().await {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
