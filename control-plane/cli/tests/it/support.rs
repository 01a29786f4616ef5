//! The binary as tests start it, and a running control plane.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

/// Timeout that catches a hang, far above the duration of any step.
pub(crate) const GUARD: Duration = Duration::from_secs(60);

/// Returns the binary with a state directory, free ports, and none of this process's environment.
pub(crate) fn asp(state: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_asp"));
    command.env_clear().env("ASP_STATE_DIR", state);
    for name in ["ASP_PORT", "ASP_ADMIN_PORT", "ASP_GATEWAY_PORT", "ASP_XDS_PORT"] {
        command.env(name, "0");
    }
    command
}

/// Returns the samples of the repository.
pub(crate) fn primitives() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../primitives")
}

/// Returns output as text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Output {
    command.output().unwrap()
}

/// A running `asp serve`, killed with the test.
pub(crate) struct Serving {
    pub(crate) child: std::process::Child,
    ports: Value,
}

impl Serving {
    /// Serves the samples in development mode.
    pub(crate) async fn start(state: &Path) -> Serving {
        Serving::run(asp(state).args(["serve", "--dev", "--primitives"]).arg(primitives()), state).await
    }

    /// Starts `command`, and waits until it has reported its ports.
    pub(crate) async fn run(command: &mut Command, state: &Path) -> Serving {
        let child = command.stderr(Stdio::null()).spawn().unwrap();
        let file = state.join("ports.json");
        let ports = until(|| serde_json::from_slice(&std::fs::read(&file).ok()?).ok()).await;
        Serving { child, ports }
    }

    /// Returns a URL at the port of this name.
    pub(crate) fn url(&self, name: &str, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.ports[name])
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Err: it has exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until `found` returns a value.
pub(crate) async fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
    tokio::time::timeout(GUARD, async {
        loop {
            if let Some(value) = found() {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("it happens in time")
}

/// Waits until the URL answers 200.
pub(crate) async fn answers_200(url: &str) {
    let asked = async {
        loop {
            if let Ok(response) = reqwest::get(url).await
                && response.status() == 200
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(GUARD, asked).await.unwrap_or_else(|_| panic!("{url} does not answer 200"));
}
